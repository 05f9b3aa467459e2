"""Small files of each format, and how often a property is tried."""

import gzip
import lzma

import zstandard
from hypothesis import settings

many = settings(max_examples=60, deadline=None, derandomize=True)
"""So many random examples, the same in every run, however long one takes."""
PACK = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}


def write(folder, name, text, ending=""):
    """A file with this text, packed as its ending says."""
    path = folder / f"{name}{ending}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(PACK[ending](text.encode() if isinstance(text, str) else text))
    return path
