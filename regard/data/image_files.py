"""Image files: open them safely, and find them in folders and tables."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard.data.example import ImageText
from regard.files import open_regular
from regard.tokenization.text_files import DataError, read_lines

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
"""The formats that are opened: pictures only, none that a program interprets."""
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
MAX_PIXELS = 100_000_000
"""Larger images are refused before they are decoded: a small file can claim any size."""


class ImageError(ValueError):
    """A file is not an image that can be read."""


def open_image(path: str | Path) -> Image:
    """Open and decode an image, upright as its camera says."""
    try:
        import PIL.Image
        from PIL import ImageOps
    except ImportError:
        raise ImageError("reading images needs Pillow: pip install 'regard[vision]'") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PIL.Image.DecompressionBombWarning)  # `MAX_PIXELS` decides
        try:
            with open_regular(path) as file, PIL.Image.open(file, formats=FORMATS) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise ImageError(_size_message(path, f"{image.width:,} × {image.height:,} pixels"))
                image.load()
                return ImageOps.exif_transpose(image)
        except PIL.Image.DecompressionBombError:
            raise ImageError(_size_message(path, "too many pixels")) from None
        except PIL.UnidentifiedImageError:
            raise ImageError(f"{path} is not an image: expected {', '.join(FORMATS)}") from None
        except FileNotFoundError:
            raise ImageError(f"{path}: file not found") from None
        except IsADirectoryError:
            raise ImageError(f"{path} is a folder: expected an image") from None
        except (OSError, SyntaxError, EOFError, ValueError) as error:
            if isinstance(error, ImageError):
                raise
            raise ImageError(f"{path}: the image is damaged ({error}): copy it again") from None


def _size_message(path: str | Path, found: str) -> str:
    return f"{path} has {found}; expected at most {MAX_PIXELS:,}: reduce it first"


def is_image_name(name: str | Path) -> bool:
    """Whether a name ends as those of images do."""
    return str(name).lower().endswith(SUFFIXES)


def list_images(folder: Path) -> list[Path]:
    """Return the images in a folder and its subfolders, sorted by name."""
    found = [Path(parent) / name for parent, _, names in os.walk(folder) for name in names if is_image_name(name)]
    if not found:
        raise DataError(folder, None, f"the folder has no images: expected files that end in {', '.join(SUFFIXES)}")
    return sorted(found)


def read_image_texts(files: Sequence[Path]) -> Iterator[ImageText]:
    """Iterate over images with a label or a caption.

    A folder has a subfolder for each label: `train/cat/7.png`. A table has a row for each image: its file, relative to
    the table, a tab, and the label or caption. An image may have several rows.
    """
    for file in files:
        if file.is_dir():
            yield from _read_folder(file)
        else:
            yield from _read_table(file)


def _read_folder(folder: Path) -> Iterator[ImageText]:
    for number, path in enumerate(list_images(folder), 1):
        if path.parent == folder:
            raise DataError(path, None, f"expected a subfolder of {folder} for each label, found an image beside them")
        yield ImageText(file=path, line=number, image=path, text=path.relative_to(folder).parts[0])


def _read_table(file: Path) -> Iterator[ImageText]:
    for line, row in read_lines(file):
        name, tab, text = row.partition("\t")
        if not tab or not name or not text.strip():
            raise DataError(file, line, f"expected an image file, a tab and its label or caption, found {row[:60]!r}")
        path = file.parent / name
        if not path.is_file():
            raise DataError(file, line, f"image not found: {path} (names are relative to the table)")
        yield ImageText(file=file, line=line, image=path, text=text)
