"""From an image to the pixel values that a network reads: convert, resize, crop, rescale, normalise.

The options are those of `preprocessor_config.json` in a model folder. Images are arrays of height × width × channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.checkpoint.model_folder import CheckpointError, ModelFolder
from regard.transformer.interface import Reads

if TYPE_CHECKING:
    from PIL.Image import Image

CONFIG_FILE = "preprocessor_config.json"
COMBINED_FILE = "processor_config.json"
"""A file of newer releases that holds the same under the key `image_processor`."""
HALF = (0.5, 0.5, 0.5)
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
BILINEAR, BICUBIC = 2, 3
"""Numbers of resampling filters in Pillow."""
FILTERS = range(6)
RESCALE = 1 / 255


@dataclass(frozen=True, kw_only=True)
class ExactSize:
    """Resize to this size, whatever the proportions."""

    height: int
    width: int


@dataclass(frozen=True, kw_only=True)
class ShortestEdge:
    """Resize in proportion, so that the shorter side has this length."""

    length: int
    longest: int | None = None
    """Maximum length of the longer side; it takes precedence."""


@dataclass(frozen=True, kw_only=True)
class ImageProcessor:
    """The steps from an image to pixel values. None leaves a step out."""

    name: str = "ViTImageProcessor"
    """The published name of this kind of processor."""
    size: ExactSize | ShortestEdge | None
    """How images are resized."""
    resample: int = BILINEAR
    """The filter for resizing, by its number in Pillow."""
    crop: tuple[int, int] | None = None
    """Height and width of the part in the centre that is kept; smaller images are surrounded by black."""
    rescale: float | None = RESCALE
    """What pixel values from 0 to 255 are multiplied with."""
    mean: tuple[float, ...] | None = HALF
    """What is subtracted, by channel."""
    std: tuple[float, ...] | None = HALF
    """What the difference is divided by, by channel."""

    @property
    def channels(self) -> int:
        """Number of channels: one for grey images, three for colours."""
        return 3 if self.mean is None else len(self.mean)

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of all images after resizing and cropping."""
        if self.crop is not None:
            return self.channels, *self.crop
        if not isinstance(self.size, ExactSize):
            raise ValueError("the images would have different sizes: add crop_size, or height and width in size")
        return self.channels, self.size.height, self.size.width

    def __call__(self, image: Image) -> NDArray[np.float32]:
        """Return the pixel values of an image: channels × height × width."""
        return self.normalize(self.resize(image))

    def resize(self, image: Image) -> NDArray[np.uint8]:
        """Convert, resize and crop: what can be stored, as numbers from 0 to 255 (channels × height × width)."""
        image = convert(image, self.channels)
        if self.size is not None:
            height, width = output_size(self.size, image.height, image.width)
            image = image.resize((width, height), resample=self.resample)
        pixels = np.asarray(image)
        pixels = pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
        return pixels if self.crop is None else center_crop(pixels, *self.crop)

    def normalize(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Rescale and normalise; `pixels` may have further axes before the channels."""
        values = pixels.astype(np.float32)
        if self.rescale is not None:
            values = (pixels.astype(np.float64) * self.rescale).astype(np.float32)
        if self.mean is not None and self.std is not None:
            mean, std = (np.array(each, np.float32)[:, None, None] for each in (self.mean, self.std))
            values = (values - mean) / std
        return values


def convert(image: Image, channels: int) -> Image:
    """Convert an image to grey or to colours. What is transparent becomes white."""
    import PIL.Image

    if channels == 1:
        return image.convert("L")
    if "A" in image.getbands() or image.info.get("transparency") is not None:
        image = image.convert("RGBA")
        background = PIL.Image.new("RGBA", image.size, (255, 255, 255, 255))
        return PIL.Image.alpha_composite(background, image).convert("RGB")
    return image.convert("RGB")


def output_size(size: ExactSize | ShortestEdge, height: int, width: int) -> tuple[int, int]:
    """Return height and width after resizing."""
    if isinstance(size, ExactSize):
        return size.height, size.width
    short, long = min(height, width), max(height, width)
    new_short, new_long = size.length, int(size.length * long / short)
    if size.longest is not None and size.length * long / short > size.longest:
        exact = size.longest * short / long
        new_short, new_long = round(exact), int(exact * long / short)
    return (new_short, new_long) if height <= width else (new_long, new_short)


def center_crop(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Keep the centre of an image (channels × height × width), or surround it by zeros."""
    for axis, size in ((1, height), (2, width)):
        excess = pixels.shape[axis] - size
        if excess >= 0:
            pixels = np.take(pixels, range(excess // 2, excess // 2 + size), axis=axis)
        else:
            before = -(excess // 2)
            padding = [(0, 0)] * 3
            padding[axis] = (before, -excess - before)
            pixels = np.pad(pixels, padding)
    return pixels


def vit_processor(height: int, width: int, channels: int = 3) -> ImageProcessor:
    """Return the usual processor of vision Transformers."""
    half = (0.5,) * channels
    return ImageProcessor(size=ExactSize(height=height, width=width), mean=half, std=half)


def clip_processor(size: int) -> ImageProcessor:
    """Return the usual processor of CLIP."""
    return ImageProcessor(
        name="CLIPImageProcessor",
        size=ShortestEdge(length=size),
        resample=BICUBIC,
        crop=(size, size),
        mean=CLIP_MEAN,
        std=CLIP_STD,
    )


def default_processor(network: Any) -> ImageProcessor | None:
    """Return the usual processor for a network whose folder has none; None if it reads no images."""
    if network.reads is Reads.TEXT_AND_IMAGE:
        return clip_processor(network.config.vision.embedding.tokens.image[0])
    if network.reads is not Reads.IMAGE:
        return None
    patches = network.config.embedding.tokens
    height, width = patches.image
    return vit_processor(height, width, patches.channels)


def require_processor(processor: ImageProcessor | None) -> ImageProcessor:
    """Return the processor of a model. Raises a ValueError if its network reads no images."""
    if processor is None:
        raise ValueError("this network reads no images: use a vision model (ViT, CLIP)")
    return processor


DEFAULTS = {"ViT": vit_processor(224, 224), "CLIP": clip_processor(224)}
"""The values of keys that a file leaves out, by kind of processor."""


def read_image_processor(folder: str | Path) -> ImageProcessor | None:
    """Read the processor of a model folder; None if the folder has none."""
    files = ModelFolder(folder)
    path = files.path / CONFIG_FILE
    values = files.read_if_exists(CONFIG_FILE)
    if not values:
        path = files.path / COMBINED_FILE
        values = files.read_if_exists(COMBINED_FILE).get("image_processor") or {}
    if not values:
        return None
    try:
        return _parse(values)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: {error}") from None


def processor_file(processor: ImageProcessor) -> dict[str, Any]:
    """Return the content of preprocessor_config.json."""
    values: dict[str, Any] = {"image_processor_type": processor.name, "do_resize": processor.size is not None}
    match processor.size:
        case ExactSize(height=height, width=width):
            values["size"] = {"height": height, "width": width}
        case ShortestEdge(length=length, longest=longest):
            values["size"] = {"shortest_edge": length} | ({"longest_edge": longest} if longest else {})
    values |= {"resample": processor.resample, "do_center_crop": processor.crop is not None}
    if processor.crop is not None:
        values["crop_size"] = {"height": processor.crop[0], "width": processor.crop[1]}
    values |= {"do_rescale": processor.rescale is not None, "do_normalize": processor.mean is not None}
    if processor.rescale is not None:
        values["rescale_factor"] = processor.rescale
    if processor.mean is not None and processor.std is not None:
        values |= {"image_mean": list(processor.mean), "image_std": list(processor.std)}
    return values | {"do_convert_rgb": processor.channels == 3}


def _parse(values: Mapping[str, Any]) -> ImageProcessor:
    name = str(values.get("image_processor_type") or values.get("feature_extractor_type") or "")
    kind = next((kind for kind in DEFAULTS if name.startswith(kind)), None)
    if kind is None:
        raise ValueError(
            f"image_processor_type is {name!r}; expected ViTImageProcessor or CLIPImageProcessor, whose steps are known"
        )
    default = DEFAULTS[kind]
    resample = values.get("resample", default.resample)
    if resample not in FILTERS:
        raise ValueError(f"resample is {resample!r}; expected the number of a filter, 0 to 5")
    crops = values.get("do_center_crop", default.crop is not None)
    normalizes = values.get("do_normalize", True)
    return ImageProcessor(
        name=f"{kind}ImageProcessor",
        size=_size(values, default) if values.get("do_resize", True) else None,
        resample=resample,
        crop=_crop(values.get("crop_size", default.crop)) if crops else None,
        rescale=float(values.get("rescale_factor", RESCALE)) if values.get("do_rescale", True) else None,
        mean=_channels("image_mean", values.get("image_mean", default.mean)) if normalizes else None,
        std=_channels("image_std", values.get("image_std", default.std)) if normalizes else None,
    )


def _size(values: Mapping[str, Any], default: ImageProcessor) -> ExactSize | ShortestEdge | None:
    match values.get("size"):
        case None:
            return default.size
        case int(length) if isinstance(default.size, ShortestEdge):  # old files have one number
            return ShortestEdge(length=_pixels("size", length))
        case int(length):
            return ExactSize(height=_pixels("size", length), width=length)
        case {"height": height, "width": width}:
            return ExactSize(height=_pixels("size", height), width=_pixels("size", width))
        case {"shortest_edge": length, **rest}:
            longest = rest.get("longest_edge")
            return ShortestEdge(
                length=_pixels("size", length), longest=None if longest is None else _pixels("size", longest)
            )
        case value:
            raise ValueError(f"size is {value!r}; expected height and width, or shortest_edge")


def _crop(value: Any) -> tuple[int, int]:
    match value:
        case int(length):
            return _pixels("crop_size", length), length
        case {"height": height, "width": width} | (height, width):
            return _pixels("crop_size", height), _pixels("crop_size", width)
    raise ValueError(f"crop_size is {value!r}; expected height and width")


def _pixels(name: str, value: Any) -> int:
    if type(value) is not int or not 0 < value < 2**14:
        raise ValueError(f"{name} is {value!r}; expected a number of pixels")
    return value


def _channels(name: str, value: Any) -> tuple[float, ...]:
    numbers: Sequence[Any] = value if isinstance(value, Sequence) and not isinstance(value, str) else [value] * 3
    if len(numbers) not in (1, 3) or not all(isinstance(number, int | float) for number in numbers):
        raise ValueError(f"{name} is {value!r}; expected a number for each of one or three channels")
    return tuple(map(float, numbers))
