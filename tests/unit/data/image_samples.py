"""Images that tests make themselves."""

import struct
import zlib

import numpy as np
import PIL.Image


def random_image(height, width, channels=3, seed=0):
    shape = (height, width) if channels == 1 else (height, width, channels)
    return PIL.Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


def bomb(path, side=60_000):
    """A PNG of a few hundred bytes whose header claims side × side pixels."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(b"\0" * 99)), chunk(b"IEND", b""))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    return path
