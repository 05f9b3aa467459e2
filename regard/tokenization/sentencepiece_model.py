"""SentencePiece `.model` files, read without the sentencepiece package.

Such a file is a message in the protobuf wire format: a sequence of fields, each with a number, a type and a value.
The parser extracts what a tokenizer needs and skips everything else. The file is not trusted: every length is checked
against the remaining bytes before anything is read.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from regard.files import read_bytes
from regard.tokenization.io import TokenizerError

E = TypeVar("E", bound=enum.IntEnum)


class ModelType(enum.IntEnum):
    """The segmentation algorithm (`TrainerSpec.ModelType` of the format)."""

    UNIGRAM = 1
    BPE = 2
    WORD = 3
    CHAR = 4


class PieceType(enum.IntEnum):
    """The type of a piece (`ModelProto.SentencePiece.Type` of the format)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Piece:
    """One entry of the vocabulary; its index is its id."""

    text: str
    score: float
    type: PieceType


@dataclass(frozen=True, kw_only=True)
class SentencePieceModel:
    """Content of a `.model` file."""

    pieces: list[Piece]
    model_type: ModelType
    unk_id: int
    byte_fallback: bool
    precompiled_charsmap: bytes
    """The compiled normalization rules; empty if characters are not normalized."""
    add_dummy_prefix: bool
    """Put a space before the text."""
    remove_extra_whitespaces: bool
    """Collapse runs of spaces to one, and strip those at both ends."""

    @property
    def scores(self) -> list[tuple[str, float]]:
        """Text and score of all pieces, in the order of their ids."""
        return [(piece.text, piece.score) for piece in self.pieces]


def read_sentencepiece_model(path: Path) -> SentencePieceModel:
    """Read a `.model` (or `.spm`) file."""
    try:
        data = read_bytes(path)
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read: {error.strerror}") from None
    if data.startswith(b"version https://git-lfs"):
        raise TokenizerError(f"{path} is a git-lfs pointer, not the model: run `git lfs pull`")
    try:
        return _parse_model(data)
    except (_ParseError, UnicodeDecodeError, struct.error) as error:
        raise TokenizerError(f"{path} is corrupt or not a SentencePiece model ({error}): copy it again") from None


class _ParseError(Exception):
    """The bytes are not a valid model."""


def _parse_model(data: bytes) -> SentencePieceModel:
    pieces: list[Piece] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for field_number, value in _parse_fields(data):
        match field_number:
            case 1:
                pieces.append(_parse_piece(_require_bytes(value)))
            case 2:
                trainer = dict(_parse_fields(_require_bytes(value)))
            case 3:
                normalizer = dict(_parse_fields(_require_bytes(value)))
    if not pieces:
        raise _ParseError("it has no pieces")
    unk_id = _to_signed(trainer.get(40, 0))
    if not 0 <= unk_id < len(pieces):
        raise _ParseError(f"unk_id {unk_id} is out of range for {len(pieces)} pieces")
    return SentencePieceModel(
        pieces=pieces,
        model_type=_parse_enum(ModelType, trainer.get(3, 1)),
        unk_id=unk_id,
        byte_fallback=bool(trainer.get(35, 0)),
        precompiled_charsmap=_require_bytes(normalizer.get(2, b"")),
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
    )


def _parse_piece(data: bytes) -> Piece:
    fields = dict(_parse_fields(data))
    score = struct.unpack("<f", _require_bytes(fields.get(2, b"\0\0\0\0")))[0]
    return Piece(_require_bytes(fields.get(1, b"")).decode(), score, _parse_enum(PieceType, fields.get(3, 1)))


def _parse_enum(enum_type: type[E], value: int | bytes) -> E:
    try:
        return enum_type(_to_signed(value))
    except ValueError:
        raise _ParseError(f"{enum_type.__name__} {value!r} is unknown") from None


def _parse_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a message: an int for varints, bytes for all other types."""
    offset = 0
    while offset < len(data):
        tag, offset = _read_varint(data, offset)
        field_number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            value, offset = _read_varint(data, offset)
            yield field_number, value
            continue
        match wire_type:
            case 1:
                length = 8
            case 2:
                length, offset = _read_varint(data, offset)
            case 5:
                length = 4
            case _:
                raise _ParseError(f"unknown wire type {wire_type} at byte {offset}")
        if length > len(data) - offset:
            raise _ParseError(
                f"the field at byte {offset} has length {length}, but only {len(data) - offset} bytes are left"
            )
        yield field_number, data[offset : offset + length]
        offset += length


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return a varint and the offset after it."""
    if offset < len(data) and data[offset] < 0x80:  # fast path: nearly all varints have one byte
        return data[offset], offset + 1
    value = 0
    for shift in range(0, 70, 7):
        if offset >= len(data):
            raise _ParseError("truncated varint")
        value |= (data[offset] & 0x7F) << shift
        offset += 1
        if data[offset - 1] < 0x80:
            return value, offset
    raise _ParseError(f"the varint that ends at byte {offset} is too long")


def _require_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _ParseError("expected bytes, found a varint")
    return value


def _to_signed(value: int | bytes) -> int:
    """Return a signed varint: negative numbers are stored as their 64-bit two's complement."""
    if isinstance(value, bytes):
        raise _ParseError("expected a varint, found bytes")
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value
