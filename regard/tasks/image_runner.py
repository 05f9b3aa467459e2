"""Run a network on images, in batches, as they are read: memory does not grow with the number of images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.image_files import open_image
from regard.data.image_processor import ImageProcessor

if TYPE_CHECKING:
    from PIL.Image import Image

ResultT = TypeVar("ResultT")
BATCH_IMAGES = 16
"""Images of one batch: their patches fill the matrices of a network, and few images are in memory at a time."""
ImageInput = Any
"""The name of an image file, an image of Pillow, or an array of height × width × channels with values from 0 to 255."""


def run_on_images(
    inputs: Iterable[ImageInput],
    processor: ImageProcessor,
    compute: Callable[[Float[Tensor, "images channels height width"]], Sequence[ResultT]],
    *,
    batch_size: int = BATCH_IMAGES,
    device: torch.device | None = None,
) -> Iterator[ResultT]:
    """Yield what `compute` returns for each image, in their order."""
    if isinstance(inputs, str | Path):
        raise ValueError("expected a list or an iterator of images, found a single name: pass [name]")
    remaining = iter(inputs)
    while batch := list(islice(remaining, batch_size)):
        pixels = np.stack([processor(load_image(image)) for image in batch])
        with torch.inference_mode():
            results = compute(torch.from_numpy(pixels).to(device))
        yield from results


def load_image(image: ImageInput) -> Image:
    """Open an image file; other images are converted to Pillow's."""
    if isinstance(image, str | Path):
        return open_image(image)
    if isinstance(image, np.ndarray):
        import PIL.Image

        if image.dtype != np.uint8 or image.ndim not in (2, 3):
            raise ValueError(
                f"an image is an array of {image.dtype} with shape {image.shape}; expected uint8, height × width × "
                "channels"
            )
        return PIL.Image.fromarray(image)
    if not hasattr(image, "getbands"):
        raise ValueError(f"expected an image or the name of its file, found {type(image).__name__}")
    converted: Image = image
    return converted


def check_image_size(network: Any, processor: ImageProcessor) -> None:
    """Raise if the processor gives images of another size than the network reads."""
    patches = getattr(network, "vision", network).config.embedding.tokens
    height, width = processor.crop or _exact_size(processor) or patches.image
    if (height, width) != tuple(patches.image) or processor.channels != patches.channels:
        raise ValueError(
            f"preprocessor_config.json gives images of {processor.channels} × {height} × {width}, but the network "
            f"reads {patches.channels} × {patches.image[0]} × {patches.image[1]}: correct the file"
        )


def _exact_size(processor: ImageProcessor) -> tuple[int, int] | None:
    size = processor.size
    return (size.height, size.width) if hasattr(size, "height") else None  # type: ignore[union-attr]
