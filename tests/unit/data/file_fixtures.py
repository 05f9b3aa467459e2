"""Writing test files, and the hypothesis settings of property tests."""

import gzip
import lzma

import zstandard
from hypothesis import settings

property_settings = settings(max_examples=60, deadline=None, derandomize=True)
"""60 random examples, the same in every run, without a time limit."""
COMPRESSORS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}


def write(folder, name, text, suffix=""):
    """Write a file with this text, compressed according to its suffix."""
    path = folder / f"{name}{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(COMPRESSORS[suffix](text.encode() if isinstance(text, str) else text))
    return path
