"""SentencePiece's text normalization: characters by a compiled table of rules, whitespace by options of the model.

The table maps the longest matching byte sequence to a replacement. It is a trie stored as a double array (Aoe 1989, as
in the darts-clone library): the child of a unit by the byte `c` is at `position ^ c`, and is valid if its label is `c`.
"""

from __future__ import annotations

import struct

from regard.tokenization.io import TokenizerError
from regard.tokenization.sentencepiece_model import PieceType, SentencePieceModel

SPACE = "▁"
LABEL_MASK = 1 << 31 | 0xFF
MAX_RULE_LENGTH = 64
"""Maximum length of a match in characters: no rule is as long."""
ANY_FOLLOWER = frozenset([b"", b"every"])
"""The slow path is needed whatever follows."""
NOT_CACHED = ("", ANY_FOLLOWER)


class SentencePieceNormalizer:
    """Normalizes text exactly as the sentencepiece package does for a model."""

    def __init__(self, model: SentencePieceModel) -> None:
        self._units, self._replacements = _parse_charsmap(model.precompiled_charsmap)
        self._add_dummy_prefix, self._remove_extra_whitespaces = model.add_dummy_prefix, model.remove_extra_whitespaces
        user_defined = [piece.text for piece in model.pieces if piece.type is PieceType.USER_DEFINED]
        self._user_defined = sorted(user_defined, key=len, reverse=True)
        self._ascii_unchanged = self._keeps_ascii()
        self._cache: dict[str, tuple[str, frozenset[bytes]]] = {}
        """Replacement of each single character, and the following bytes that require the slow path."""

    def normalize(self, text: str) -> str:
        """Normalize a text; spaces become ▁."""
        if self._ascii_unchanged and text.isascii() and text.isprintable():
            words = " ".join(text.split()) if self._remove_extra_whitespaces else text
            return f"{SPACE if self._add_dummy_prefix and words else ''}{words}".replace(" ", SPACE)
        return self.normalize_with_offsets(text)[0]

    def normalize_with_offsets(self, text: str) -> tuple[str, list[int], list[int]]:
        """Normalize a text; also return start and end of each normalized character in the original text."""
        normalized: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        if self._add_dummy_prefix and text and not self._remove_extra_whitespaces:
            normalized, starts, ends = [SPACE], [0], [0]
        after_space, position = self._remove_extra_whitespaces, 0
        while position < len(text):
            replacement, followers = self._cache.get(text[position], NOT_CACHED)
            length = 1
            if followers and (followers is ANY_FOLLOWER or text[position + 1 : position + 2].encode()[:1] in followers):
                replacement, length = self._normalize_at(text, position)
            for character in replacement:
                if character == " " and after_space:
                    continue
                if self._add_dummy_prefix and not normalized:
                    normalized.append(SPACE)
                    starts.append(position)
                    ends.append(position)
                normalized.append(SPACE if character == " " else character)
                starts.append(position)
                ends.append(position + length)
                after_space = False
            after_space = self._remove_extra_whitespaces and (after_space or replacement.endswith(" "))
            position += length
        while self._remove_extra_whitespaces and normalized and normalized[-1] == SPACE:
            normalized.pop()
        return "".join(normalized), starts, ends

    def _normalize_at(self, text: str, position: int) -> tuple[str, int]:
        """Slow path: return the replacement at a position, and the number of characters that it replaces."""
        for piece in self._user_defined:
            if text.startswith(piece, position):
                return piece, len(piece)
        character = text[position]
        if character not in self._cache:
            replacement, followers = self._normalize_character(character)
            starts_piece = any(piece[0] == character for piece in self._user_defined)
            self._cache[character] = replacement, ANY_FOLLOWER if starts_piece else followers
        return self._longest_match(text, position, self._cache[character][0])

    def _normalize_character(self, character: str) -> tuple[str, frozenset[bytes]]:
        """Return the replacement of a single character, and the bytes that continue it to a longer match."""
        index, value = self._root(), None
        for byte in character.encode():
            if index is not None:
                index, value = self._traverse(index, byte)
        if index is None:
            return character, frozenset()
        units = self._units
        children = ((byte, index ^ byte) for byte in range(1, 256))
        followers = (
            bytes([byte]) for byte, child in children if child < len(units) and units[child] & LABEL_MASK == byte
        )
        return character if value is None else self._replacement(value), frozenset(followers)

    def _longest_match(self, text: str, position: int, replacement: str) -> tuple[str, int]:
        """Return replacement and length of the longest match; default: the given replacement of one character."""
        best, index = (replacement, 1), self._root()
        for length, character in enumerate(text[position : position + MAX_RULE_LENGTH], 1):
            value = None
            for byte in character.encode():
                if index is None:
                    return best
                index, value = self._traverse(index, byte)
            if value is not None:
                best = (self._replacement(value), length)
            if index is None:
                break
        return best

    def _root(self) -> int | None:
        return self._offset(self._units[0]) if self._units else None

    def _traverse(self, index: int, byte: int) -> tuple[int | None, int | None]:
        """Follow one byte: return the next index and the value stored there, each None if there is none."""
        index ^= byte
        if byte == 0 or index >= len(self._units) or self._units[index] & LABEL_MASK != byte:
            return None, None
        unit = self._units[index]
        index ^= self._offset(unit)
        if index >= len(self._units):
            return None, None
        return index, self._units[index] & 0x7FFFFFFF if unit >> 8 & 1 else None

    @staticmethod
    def _offset(unit: int) -> int:
        return (unit >> 10) << ((unit & 1 << 9) >> 6)

    def _replacement(self, offset: int) -> str:
        return self._replacements[offset : self._replacements.find(b"\0", offset)].decode("utf-8", "replace")

    def _keeps_ascii(self) -> bool:
        """Whether printable ASCII is never replaced: then most texts take a fast path."""
        root = self._root()
        if any(piece.isascii() for piece in self._user_defined):
            return False
        if root is None:
            return True
        for first in range(32, 127):
            index, value = self._traverse(root, first)
            if value is not None:
                return False
            if index is not None and any(self._traverse(index, second)[0] is not None for second in range(32, 127)):
                return False
        return True


def _parse_charsmap(data: bytes) -> tuple[tuple[int, ...], bytes]:
    if not data:
        return (), b""
    size = struct.unpack("<I", data[:4])[0] if len(data) >= 4 else 0
    if size > len(data) - 4 or size % 4:
        raise TokenizerError("precompiled_charsmap is corrupt: copy the model file again")
    return struct.unpack(f"<{size // 4}I", data[4 : 4 + size]), data[4 + size :]
