"""Classify images: with a classification head, or with CLIP and labels that are given as words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.image_processor import ImageProcessor
from regard.tasks.classify import Classification, ClassifyOptions
from regard.tasks.encoder_runner import EncoderRunner, TokenRow, encode_texts, max_row_length, truncated_positions
from regard.tasks.image_runner import BATCH_IMAGES, check_image_size, run_on_images
from regard.tokenization.tokenizer import Tokenizer
from regard.training.task import BUFFER_SIZE

Images = Float[Tensor, "images channels height width"]


class ImageClassifier:
    """A network with a classification head for images, ready to classify."""

    def __init__(
        self, network: Any, processor: ImageProcessor, labels: Sequence[str], options: ClassifyOptions
    ) -> None:
        check_image_size(network, processor)
        self.network, self.processor, self.options = network, processor, options
        self.labels = tuple(labels) or tuple(f"LABEL_{index}" for index in range(network.num_labels))
        self.device = next(network.parameters()).device

    def run(self, inputs: Iterable[Any], *, buffer_size: int = BUFFER_SIZE) -> Iterator[Classification]:
        """Classify every image; results come in the order of the images."""
        size = min(buffer_size, BATCH_IMAGES)
        return run_on_images(inputs, self.processor, self._classify, batch_size=size, device=self.device)

    def _classify(self, images: Images) -> list[Classification]:
        return [self._classification(row) for row in self.logits(images).double().softmax(dim=-1).tolist()]

    def logits(self, images: Images) -> Float[Tensor, "images labels"]:
        """Return the logits of the labels for each image."""
        logits: Tensor = self.network(images).logits
        return logits

    def _classification(self, probabilities: Sequence[float]) -> Classification:
        if len(probabilities) != len(self.labels):
            raise ValueError(f"the model has {len(self.labels)} label names for {len(probabilities)} logits")
        ranked = sorted(zip(self.labels, probabilities, strict=True), key=lambda pair: -pair[1])
        return Classification(labels=(ranked[0][0],), scores=dict(ranked[: self.options.top_k]))


class ZeroShotImageClassifier(ImageClassifier):
    """A text encoder and an image encoder: the label is the text whose vector is nearest to that of the image."""

    def __init__(self, network: Any, processor: ImageProcessor, tokenizer: Tokenizer, options: ClassifyOptions) -> None:
        labels = parse_labels(options.labels)
        super().__init__(network, processor, labels, options)
        max_length = max_row_length(network, tokenizer)
        encodings = encode_texts(tokenizer, [options.template.replace("{}", label) for label in labels])
        rows = [TokenRow.of(encoding, truncated_positions(encoding, max_length)[0]) for encoding in encodings]
        runner = EncoderRunner(network, options.batch_tokens)
        vectors = runner.map(rows, lambda batch: list(network.embed_text(batch.tokens, layout=batch.layout)))
        self.label_vectors = torch.stack(vectors)

    def logits(self, images: Images) -> Float[Tensor, "images labels"]:
        """Return the similarities of each image to the labels."""
        similarity = self.network.compare(self.label_vectors, self.network.embed_images(images))
        logits: Tensor = similarity.logits_per_image
        return logits


def parse_labels(text: str | None) -> tuple[str, ...]:
    """Split labels at commas."""
    labels = tuple(label.strip() for label in (text or "").split(","))
    if len(labels) < 2 or not all(labels):
        raise ValueError(
            'this model compares images with texts: give labels, separated by commas: labels="a dog, a cat" (--labels)'
        )
    if len({*labels}) < len(labels):
        raise ValueError(f"a label occurs twice in {text!r}")
    return labels
