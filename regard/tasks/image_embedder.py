"""The `ImageEmbedder`: vectors of images, in the space of CLIP's texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from regard.data.image_processor import ImageProcessor
from regard.tasks.embed import EmbedOptions, TextVector
from regard.tasks.embedder import make_text_vector
from regard.tasks.image_runner import BATCH_IMAGES, check_image_size, run_on_images
from regard.training.task import BUFFER_SIZE
from regard.transformer.interface import Reads


class ImageEmbedder:
    """A network for texts and images, ready to embed images."""

    def __init__(self, network: Any, processor: ImageProcessor, options: EmbedOptions) -> None:
        if network.reads is not Reads.TEXT_AND_IMAGE:
            raise ValueError("this model reads texts only: leave out --images")
        if options.tokens or options.pooling or options.prompt:
            raise ValueError("an image has no words, pooling or prompt: leave these options out")
        check_image_size(network, processor)
        self.network, self.processor, self.options = network, processor, options
        self.device = next(network.parameters()).device

    def run(self, inputs: Iterable[Any], *, buffer_size: int = BUFFER_SIZE) -> Iterator[TextVector]:
        """Embed every image; results come in the order of the images."""
        size = min(buffer_size, BATCH_IMAGES)
        return run_on_images(inputs, self.processor, self._embed, batch_size=size, device=self.device)

    def _embed(self, images: Float[Tensor, "images channels height width"]) -> list[TextVector]:
        vectors = self.network.embed_images(images).float().cpu()[:, : self.options.truncate_dim]
        if self.options.normalize:
            vectors = normalize(vectors, dim=-1)
        return [make_text_vector(vector, self.options.int8) for vector in vectors]
