"""Schemes by which tags mark entities: recognised, checked, and turned into BIO.

         John  Smith Paris Berlin  went        (two locations side by side)
BIO      B-per I-per B-loc B-loc   O
IOB1     I-per I-per I-loc B-loc   O
BIOES    B-per E-per S-loc S-loc   O
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regard.data.formats import Scheme
from regard.tokenization.text_files import DataError

MARKED = re.compile(r"([BIESLU])-(.+)", re.DOTALL)
OUTSIDE = "O"
ENDS = {Scheme.BIOES: ("E", "S"), Scheme.BILOU: ("L", "U")}
LETTERS = {Scheme.BIO: "BI", Scheme.IOB1: "BI", Scheme.LENIENT: "BI", Scheme.BIOES: "BIES", Scheme.BILOU: "BILU"}


@dataclass
class Recogniser:
    """Watches the tags of a file go by, and says which scheme they are in."""

    seen: Counter[str] = field(default_factory=Counter)
    """How often each letter stood before a type; "other" counts tags of another shape."""
    bare_beginnings: int = 0
    """I- where an entity begins: right in IOB1, a fault in BIO."""
    needless_beginnings: int = 0
    """B- where no entity of the same type stands before: right in BIO, a fault in IOB1."""

    def see(self, tags: Iterable[str]) -> None:
        """One sentence more."""
        before = None
        for tag in tags:
            found = MARKED.fullmatch(tag)
            letter, kind = found.groups() if found else (None, None)
            if letter is not None:
                self.seen[letter] += 1
            elif tag != OUTSIDE:
                self.seen["other"] += 1
            self.bare_beginnings += letter == "I" and kind != before
            self.needless_beginnings += letter == "B" and kind != before
            before = kind

    @property
    def scheme(self) -> Scheme:
        """The scheme that explains the tags. Where faults leave two, the one with the fewer faults."""
        marked = self.seen.total() - self.seen["other"]
        if marked <= self.seen["other"]:
            return Scheme.PLAIN
        if self.seen["E"] or self.seen["S"]:
            return Scheme.BIOES
        if self.seen["L"] or self.seen["U"]:
            return Scheme.BILOU
        return Scheme.IOB1 if self.bare_beginnings > self.needless_beginnings else Scheme.BIO


def recognise(sentences: Iterable[Iterable[str]]) -> Scheme:
    """The scheme of these sentences' tags."""
    recogniser = Recogniser()
    for tags in sentences:
        recogniser.see(tags)
    return recogniser.scheme


def to_bio(tags: Sequence[str], scheme: Scheme, file: Path, lines: Sequence[int]) -> tuple[str, ...]:
    """One sentence's tags in BIO. A tag that the scheme does not allow at its place is a `DataError` at its line."""
    if scheme is Scheme.PLAIN:
        return tuple(tags)
    ending, single = ENDS.get(scheme, ("", ""))
    done: list[str] = []
    inside = None  # the type of the entity that the next tag may go on with
    for tag, line in zip(tags, lines, strict=True):
        if tag == OUTSIDE:
            _check_closed(inside, scheme, tag, file, line)
            done.append(tag)
            inside = None
            continue
        letter, kind = _split(tag, scheme, file, line)
        begins = letter in ("B", single) or (scheme in (Scheme.IOB1, Scheme.LENIENT) and kind != inside)
        if not begins and kind != inside:
            raise DataError(file, line, _said(tag, inside, scheme))
        if begins:
            _check_closed(inside, scheme, tag, file, line)
        done.append(f"{'B' if begins else 'I'}-{kind}")
        inside = None if letter in (ending, single) else kind
    _check_closed(inside, scheme, "the end of the sentence", file, lines[-1] if lines else 0)
    return tuple(done)


def _split(tag: str, scheme: Scheme, file: Path, line: int) -> tuple[str, str]:
    found = MARKED.fullmatch(tag)
    letters = LETTERS[scheme]
    if found is None or found[1] not in letters:
        expected = ", ".join(f"{letter}-" for letter in letters)
        raise DataError(
            file, line, f"tag {tag!r}: expected O, or one of {expected} and a type (the scheme is {scheme.value})"
        )
    return found[1], found[2]


def _check_closed(inside: str | None, scheme: Scheme, tag: str, file: Path, line: int) -> None:
    """In schemes that mark the last word of an entity, nothing else may end one."""
    if inside is not None and scheme in ENDS:
        last = ENDS[scheme][0]
        raise DataError(
            file, line, f"{tag} where the entity {inside} is still open: {scheme.value} ends it with {last}-{inside}"
        )


def _said(tag: str, inside: str | None, scheme: Scheme) -> str:
    after = "no entity" if inside is None else f"an entity {inside}"
    return (
        f"tag {tag} follows {after}: in {scheme.value} an entity begins with B-. Correct it, or read the file with "
        f"Conll(scheme=Scheme.LENIENT), which begins an entity there"
    )
