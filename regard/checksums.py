"""Checksums of files, kept in a JSON file beside them: a flipped byte in numbers is noticed before they are used.

They are CRC-32s, which find every damage of a few bytes and are computed at gigabytes per second. They are no
protection against changes on purpose. The JSON file has its own checksum too. Files of earlier versions have none and
are read as before.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from regard.files import open_regular

FILES_KEY, OWN_KEY = "crc32", "own_crc32"
CHUNK_BYTES = 1 << 20
"""The keys of the checksums of other files, by name, and of the JSON object without this key."""


def file_checksum(path: Path) -> str:
    """Return the CRC-32 of a file."""
    value = 0
    with open_regular(path) as file:
        while chunk := file.read(CHUNK_BYTES):
            value = zlib.crc32(chunk, value)
    return f"{value:08x}"


def with_checksums(values: Mapping[str, Any], files: Iterable[Path]) -> dict[str, Any]:
    """Add the checksums of files, and that of the values themselves."""
    checked = {**values, FILES_KEY: {path.name: file_checksum(path) for path in files}}
    return with_own_checksum(checked)


def with_own_checksum(values: Mapping[str, Any]) -> dict[str, Any]:
    """Add the checksum of the values, or replace it."""
    plain = {key: value for key, value in values.items() if key != OWN_KEY}
    return {**plain, OWN_KEY: _own_checksum(plain)}


def without_checksums(values: Mapping[str, Any], path: Path, error: type[ValueError]) -> dict[str, Any]:
    """Check the values that were read from `path`, and return them without their checksums."""
    plain = {key: value for key, value in values.items() if key != OWN_KEY}
    if OWN_KEY in values and values[OWN_KEY] != _own_checksum(plain):
        raise error(f"{path} is damaged: its checksum is wrong")
    return {key: value for key, value in plain.items() if key != FILES_KEY}


def check_files(folder: Path, values: Mapping[str, Any], error: type[ValueError]) -> None:
    """Raise an error if a file of the folder does not have its checksum. Without checksums nothing is checked."""
    checksums = values.get(FILES_KEY, {})
    if not isinstance(checksums, dict):
        raise error(f"{folder}: the checksums are damaged")
    for name, expected in checksums.items():
        if Path(name).name != name:
            raise error(f"{folder}: {name!r} is not a file of this folder")
        try:
            found = file_checksum(folder / name)
        except OSError as problem:
            raise error(f"{folder / name} cannot be read: {problem.strerror}") from None
        if found != expected:
            raise error(f"{folder / name} is damaged: its checksum is wrong")


def _own_checksum(values: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(values, sort_keys=True).encode('utf-8', 'surrogatepass')):08x}"
