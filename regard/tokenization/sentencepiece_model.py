"""SentencePiece `.model` files, read without the sentencepiece package.

Such a file is a message in the protobuf wire format: fields one after another, each a number, a type and a value.
Only what a tokenizer needs is taken out; everything else is passed over. The file is not trusted: every length is
checked against what is left of the file before anything is read.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from regard.tokenization.io import TokenizerError

LARGEST = 256 * 2**20
"""The largest published models have a few megabytes."""


E = TypeVar("E", bound=enum.IntEnum)


class Kind(enum.IntEnum):
    """How text is cut into pieces."""

    UNIGRAM = 1
    BPE = 2
    WORD = 3
    CHAR = 4


class PieceKind(enum.IntEnum):
    """What a piece is for."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Piece:
    """One entry of the vocabulary; its place is its id."""

    text: str
    score: float
    kind: PieceKind


@dataclass(frozen=True, kw_only=True)
class SentencePiece:
    """What a `.model` file says."""

    pieces: list[Piece]
    kind: Kind
    unknown: int
    byte_fallback: bool
    characters: bytes
    """The compiled table of how characters are normalised; empty where text stays as it is."""
    add_space: bool
    """A space is put before the text."""
    join_spaces: bool
    """Several spaces count as one, and those at the ends as none."""

    @property
    def scores(self) -> list[tuple[str, float]]:
        """Pieces and scores by id."""
        return [(piece.text, piece.score) for piece in self.pieces]


def read(path: Path) -> SentencePiece:
    """Read a `.model` (or `.spm`) file."""
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise TokenizerError(f"{path} has {size:,} bytes: too large for a SentencePiece model")
        data = path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read: {error.strerror}") from None
    if data.startswith(b"version https://git-lfs"):
        raise TokenizerError(f"{path} is only a pointer to the model: fetch the file itself (git lfs pull)")
    try:
        return _model(data)
    except (_GarbageError, UnicodeDecodeError, struct.error) as error:
        raise TokenizerError(f"{path} is damaged or no SentencePiece model ({error}): copy it again") from None


class _GarbageError(Exception):
    """The bytes are not what they should be."""


def _model(data: bytes) -> SentencePiece:
    pieces: list[Piece] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for number, value in _fields(data):
        match number:
            case 1:
                pieces.append(_piece(_bytes(value)))
            case 2:
                trainer = dict(_fields(_bytes(value)))
            case 3:
                normalizer = dict(_fields(_bytes(value)))
    if not pieces:
        raise _GarbageError("it holds no pieces")
    unknown = _signed(trainer.get(40, 0))
    if not 0 <= unknown < len(pieces):
        raise _GarbageError(f"the unknown piece is said to be number {unknown} of {len(pieces)}")
    return SentencePiece(
        pieces=pieces,
        kind=_enum(Kind, trainer.get(3, 1)),
        unknown=unknown,
        byte_fallback=bool(trainer.get(35, 0)),
        characters=_bytes(normalizer.get(2, b"")),
        add_space=bool(normalizer.get(3, 1)),
        join_spaces=bool(normalizer.get(4, 1)),
    )


def _piece(data: bytes) -> Piece:
    fields = dict(_fields(data))
    score = struct.unpack("<f", _bytes(fields.get(2, b"\0\0\0\0")))[0]
    return Piece(_bytes(fields.get(1, b"")).decode(), score, _enum(PieceKind, fields.get(3, 1)))


def _enum(kind: type[E], value: int | bytes) -> E:
    try:
        return kind(_signed(value))
    except ValueError:
        raise _GarbageError(f"{kind.__name__} {value!r} is unknown") from None


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message: a number for varints, bytes for everything else."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            whole, at = _varint(data, at)
            yield number, whole
            continue
        match wire:
            case 1:
                length = 8
            case 2:
                length, at = _varint(data, at)
            case 5:
                length = 4
            case _:
                raise _GarbageError(f"byte {at} begins a field of the unknown type {wire}")
        if length > len(data) - at:
            raise _GarbageError(f"a field at byte {at} claims {length} bytes, and {len(data) - at} are left")
        yield number, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    if at < len(data) and data[at] < 0x80:  # nearly all of them
        return data[at], at + 1
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise _GarbageError("it ends in the middle of a number")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    raise _GarbageError(f"a number at byte {at} does not end")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _GarbageError("a number stands where text should be")
    return value


def _signed(value: int | bytes) -> int:
    """Negative numbers are written as their 64-bit two's complement."""
    if isinstance(value, bytes):
        raise _GarbageError("text stands where a number should be")
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value
