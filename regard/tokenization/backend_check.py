"""What a `tokenizer.json` may ask of the tokenizers library, which aborts the process or fills the memory otherwise."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.files import read_bytes, read_json
from regard.tokenization.io import TokenizerError

SUSPICIOUS_WORDS = (b"Precompiled", b"Replace", b"Prepend", b"\\u")
"""A file without these has nothing to check; the last one is how JSON may spell the others."""
MAX_REPLACEMENT = 64
"""Maximum length of a text that replaces a match or precedes a text. Published tokenizers have three characters."""
MAX_GROWTH = 1024
"""Maximum product of the lengths of all replacements of a normalizer or decoder."""


def check_tokenizer_json(path: Path) -> None:
    """Raise a `TokenizerError` if a `tokenizer.json` would make the library request absurd amounts of memory."""
    try:
        content = read_bytes(path)
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read: {error.strerror}") from None
    if not any(word in content for word in SUSPICIOUS_WORDS):
        return
    values = read_json(path, TokenizerError)
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        growth = 1
        for node in _nodes(values.get(part)):
            kind = node.get("type")
            if kind == "Precompiled":
                _check_charsmap(path, node.get("precompiled_charsmap"))
            text = {"Replace": "content", "Prepend": "prepend"}.get(str(kind))
            length = len(str(node.get(text, ""))) if text else 1
            growth *= max(length, 1)
            if length > MAX_REPLACEMENT or growth > MAX_GROWTH:
                raise TokenizerError(
                    f"{path}: the {part} makes texts up to {growth:,} times longer; expected at most {MAX_GROWTH:,} "
                    f"times, and replacements of at most {MAX_REPLACEMENT} characters"
                )


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Yield a part of the tokenizer, and those that it consists of."""
    if isinstance(value, dict):
        yield value
        for name in ("normalizers", "pretokenizers", "decoders"):
            parts = value.get(name)
            for part in parts if isinstance(parts, list) else ():
                yield from _nodes(part)


def _check_charsmap(path: Path, text: Any) -> None:
    """The first four bytes are the size of a table, which the library allocates before it reads the table."""
    try:
        data = base64.b64decode(text or "", validate=True)
    except (TypeError, binascii.Error):
        raise TokenizerError(f"{path}: precompiled_charsmap is not base64: copy the file again") from None
    size = int.from_bytes(data[:4], "little")
    if len(data) < 4 or size > len(data) - 4 or size % 4:
        raise TokenizerError(f"{path}: precompiled_charsmap is corrupt: copy the file again")


@contextmanager
def backend_errors(action: str) -> Iterator[None]:
    """Turn any error of the tokenizers library into a `TokenizerError`, its panics included.

    A panic (an index out of range, a regular expression that backtracks too long) is no `Exception` in Python.
    """
    try:
        yield
    except (ValueError, TypeError, OSError, MemoryError):
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise TokenizerError(f"the tokenizer cannot {action}: {str(error)[:300]}") from None
        raise
