"""How SentencePiece normalises text: characters by a compiled table, spaces by rule.

The table maps the longest matching run of bytes to a replacement. It is a trie in two arrays folded into one (Aoe's
double array, as in the darts-clone library): the unit after a byte `c` is found at `position ^ c`, and is the right
one if it carries `c` as its label.
"""

from __future__ import annotations

import struct

from regard.tokenization.io import TokenizerError
from regard.tokenization.sentencepiece_model import PieceKind, SentencePiece

SPACE = "▁"
LABEL = 1 << 31 | 0xFF
LONGEST = 64
"""Characters that are looked at together: no rule is as long."""
EVERY = frozenset([b"", b"every"])
"""Whatever follows, a closer look is due."""
UNKNOWN = ("", EVERY)


class Normalizer:
    """What a model does to a text before it is cut: exactly what the sentencepiece package does."""

    def __init__(self, model: SentencePiece) -> None:
        self._units, self._texts = _table(model.characters)
        self._add, self._join = model.add_space, model.join_spaces
        defined = [piece.text for piece in model.pieces if piece.kind is PieceKind.USER_DEFINED]
        self._defined = sorted(defined, key=len, reverse=True)
        self._plain = self._ascii_stays()
        self._known: dict[str, tuple[str, frozenset[bytes]]] = {}
        """What a character becomes by itself, and the bytes after which a closer look is due."""

    def normal(self, text: str) -> str:
        """The normal form of a text, in which a space is written ▁."""
        if self._plain and text.isascii() and text.isprintable():
            words = " ".join(text.split()) if self._join else text
            return f"{SPACE if self._add and words else ''}{words}".replace(" ", SPACE)
        return self.aligned(text)[0]

    def aligned(self, text: str) -> tuple[str, list[int], list[int]]:
        """The normal form, and where each of its characters begins and ends in the text as it was."""
        normal: list[str] = []
        begins: list[int] = []
        ends: list[int] = []
        if self._add and text and not self._join:
            normal, begins, ends = [SPACE], [0], [0]
        after_space, at = self._join, 0
        while at < len(text):
            new, followers = self._known.get(text[at], UNKNOWN)
            used = 1
            if followers and (followers is EVERY or text[at + 1 : at + 2].encode()[:1] in followers):
                new, used = self._next(text, at)
            for character in new:
                if character == " " and after_space:
                    continue
                if self._add and not normal:
                    normal.append(SPACE)
                    begins.append(at)
                    ends.append(at)
                normal.append(SPACE if character == " " else character)
                begins.append(at)
                ends.append(at + used)
                after_space = False
            after_space = self._join and (after_space or new.endswith(" "))
            at += used
        while self._join and normal and normal[-1] == SPACE:
            normal.pop()
        return "".join(normal), begins, ends

    def _next(self, text: str, at: int) -> tuple[str, int]:
        """What the text at a place becomes, and how many of its characters that takes: a closer look."""
        for defined in self._defined:
            if text.startswith(defined, at):
                return defined, len(defined)
        if text[at] not in self._known:
            new, followers = self._alone(text[at])
            self._known[text[at]] = (new, EVERY if any(word[0] == text[at] for word in self._defined) else followers)
        return self._longest(text, at, self._known[text[at]][0])

    def _alone(self, character: str) -> tuple[str, frozenset[bytes]]:
        """What a character becomes by itself, and the bytes that may follow it in a longer run."""
        place, found = self._start(), None
        for byte in character.encode():
            if place is not None:
                place, found = self._step(place, byte)
        if place is None:
            return character, frozenset()
        units = self._units
        near = ((byte, place ^ byte) for byte in range(1, 256))
        follow = (bytes([byte]) for byte, unit in near if unit < len(units) and units[unit] & LABEL == byte)
        return character if found is None else self._text(found), frozenset(follow)

    def _longest(self, text: str, at: int, alone: str) -> tuple[str, int]:
        best, place = (alone, 1), self._start()
        for length, character in enumerate(text[at : at + LONGEST], 1):
            found = None
            for byte in character.encode():
                if place is None:
                    return best
                place, found = self._step(place, byte)
            if found is not None:
                best = (self._text(found), length)
            if place is None:
                break
        return best

    def _start(self) -> int | None:
        return self._offset(self._units[0]) if self._units else None

    def _step(self, place: int, byte: int) -> tuple[int | None, int | None]:
        """The place after one more byte, and the value that stands there; None where nothing goes on."""
        place ^= byte
        if byte == 0 or place >= len(self._units) or self._units[place] & LABEL != byte:
            return None, None
        unit = self._units[place]
        place ^= self._offset(unit)
        if place >= len(self._units):
            return None, None
        return place, self._units[place] & 0x7FFFFFFF if unit >> 8 & 1 else None

    @staticmethod
    def _offset(unit: int) -> int:
        return (unit >> 10) << ((unit & 1 << 9) >> 6)

    def _text(self, place: int) -> str:
        return self._texts[place : self._texts.find(b"\0", place)].decode("utf-8", "replace")

    def _ascii_stays(self) -> bool:
        """Whether printable ASCII is left as it is: then most texts need no closer look."""
        start = self._start()
        if any(defined.isascii() for defined in self._defined):
            return False
        if start is None:
            return True
        for one in range(32, 127):
            place, found = self._step(start, one)
            if found is not None:
                return False
            if place is not None and any(self._step(place, two)[0] is not None for two in range(32, 127)):
                return False
        return True


def _table(data: bytes) -> tuple[tuple[int, ...], bytes]:
    if not data:
        return (), b""
    size = struct.unpack("<I", data[:4])[0] if len(data) >= 4 else 0
    if size > len(data) - 4 or size % 4:
        raise TokenizerError("the model's table of characters is damaged: copy the file again")
    return struct.unpack(f"<{size // 4}I", data[4 : 4 + size]), data[4 + size :]
