"""The images that a command reads: one file, all in a folder, or those that a file or standard input names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from regard.cli.until_error import UntilError
from regard.transformer.interface import Reads


def names_images(argument: str | None) -> bool:
    """Whether an argument of the command line is an image file, or a folder."""
    from regard.data.image_files import is_image_name

    if argument in (None, "", "-") or len(str(argument)) > 4096:
        return False
    path = Path(str(argument))
    return path.is_dir() or (is_image_name(path) and path.is_file())


def reads_images(network: Any, options: Any) -> bool:
    """Whether the inputs of a task are images: CLIP embeds images if the options say so, and classifies only images."""
    if network.reads is Reads.TEXT_AND_IMAGE:
        return bool(getattr(options, "images", True))
    return bool(network.reads is Reads.IMAGE or getattr(options, "images", False))


class ImageInputs:
    """The names of the images, like `TextInputs`."""

    def __init__(self, argument: str | None) -> None:
        from regard.data.image_files import is_image_name

        if argument is None and sys.stdin.isatty():
            raise typer.BadParameter("expected an image, a folder of images, a file with names, or -")
        self.argument = "-" if argument is None else argument
        path = Path(self.argument)
        self.is_single = self.argument != "-" and not path.is_dir() and (is_image_name(path) or not path.is_file())

    @property
    def buffer_size(self) -> int:
        """Number of images to read ahead."""
        return 1 if self.argument == "-" and sys.stdin.isatty() else 512

    def num_lines(self) -> int | None:
        """Number of images, if it is known before they are read."""
        from regard.data.image_files import list_images
        from regard.tokenization.text_files import read_raw_lines

        path = Path(self.argument)
        if path.is_dir():
            return len(list_images(path))
        return sum(1 for _ in read_raw_lines(path)) if not self.is_single and path.is_file() else None

    def __iter__(self) -> Iterator[str]:
        self._values = UntilError(self._names())
        return self._values

    def raise_error(self) -> None:
        """Raise the error at which the inputs ended, if there was one."""
        self._values.raise_error()

    def _names(self) -> Iterator[str]:
        from regard.data.image_files import list_images
        from regard.tokenization.text_files import decode_line, limited_lines, read_lines

        if self.is_single:
            yield self.argument
        elif self.argument == "-":
            for number, raw_line in enumerate(limited_lines(sys.stdin.buffer, "standard input"), 1):
                yield decode_line(raw_line, "standard input", number).rstrip("\r\n").split("\t")[0]
        elif Path(self.argument).is_dir():
            yield from map(str, list_images(Path(self.argument)))
        else:
            folder = Path(self.argument).parent
            for _, line in read_lines(self.argument):
                yield str(folder / line.split("\t")[0])
