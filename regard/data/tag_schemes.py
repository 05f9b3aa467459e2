"""Entity tag schemes: detection, validation and conversion to BIO.

         John  Smith Paris Berlin  went        (two adjacent locations)
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

TAG_PATTERN = re.compile(r"([BIESLU])-(.+)", re.DOTALL)
OUTSIDE = "O"
END_PREFIXES = {Scheme.BIOES: ("E", "S"), Scheme.BILOU: ("L", "U")}
SCHEME_PREFIXES = {
    Scheme.BIO: "BI",
    Scheme.IOB1: "BI",
    Scheme.LENIENT: "BI",
    Scheme.BIOES: "BIES",
    Scheme.BILOU: "BILU",
}


@dataclass
class SchemeDetector:
    """Accumulate tag statistics of a file and detect its scheme from them."""

    prefix_counts: Counter[str] = field(default_factory=Counter)
    """Number of tags with each prefix; "other" counts tags without an entity prefix, except O."""
    i_start_count: int = 0
    """Number of I- tags at the start of an entity: valid in IOB1, an error in BIO."""
    redundant_b_count: int = 0
    """Number of B- tags that do not follow an entity of the same type: valid in BIO, an error in IOB1."""

    def update(self, tags: Iterable[str]) -> None:
        """Add the tags of one sentence."""
        previous_type = None
        for tag in tags:
            match = TAG_PATTERN.fullmatch(tag)
            prefix, entity_type = match.groups() if match else (None, None)
            if prefix is not None:
                self.prefix_counts[prefix] += 1
            elif tag != OUTSIDE:
                self.prefix_counts["other"] += 1
            self.i_start_count += prefix == "I" and entity_type != previous_type
            self.redundant_b_count += prefix == "B" and entity_type != previous_type
            previous_type = entity_type

    @property
    def scheme(self) -> Scheme:
        """The scheme that fits the tags. If neither BIO nor IOB1 fits without errors, the one with fewer errors."""
        entity_tags = self.prefix_counts.total() - self.prefix_counts["other"]
        if entity_tags <= self.prefix_counts["other"]:
            return Scheme.PLAIN
        if self.prefix_counts["E"] or self.prefix_counts["S"]:
            return Scheme.BIOES
        if self.prefix_counts["L"] or self.prefix_counts["U"]:
            return Scheme.BILOU
        return Scheme.IOB1 if self.i_start_count > self.redundant_b_count else Scheme.BIO


def detect_scheme(sentences: Iterable[Iterable[str]]) -> Scheme:
    """Detect the scheme of the tags of these sentences."""
    detector = SchemeDetector()
    for tags in sentences:
        detector.update(tags)
    return detector.scheme


def to_bio(tags: Sequence[str], scheme: Scheme, file: Path, lines: Sequence[int]) -> tuple[str, ...]:
    """Convert the tags of one sentence to BIO. A tag that the scheme does not allow raises a `DataError`."""
    if scheme is Scheme.PLAIN:
        return tuple(tags)
    end_prefix, single_prefix = END_PREFIXES.get(scheme, ("", ""))
    bio_tags: list[str] = []
    open_type = None  # type of the entity that the next tag may continue
    for tag, line in zip(tags, lines, strict=True):
        if tag == OUTSIDE:
            _check_entity_closed(open_type, scheme, tag, file, line)
            bio_tags.append(tag)
            open_type = None
            continue
        prefix, entity_type = _split_tag(tag, scheme, file, line)
        i_starts = scheme in (Scheme.IOB1, Scheme.LENIENT) and entity_type != open_type
        starts_entity = prefix in ("B", single_prefix) or i_starts
        if not starts_entity and entity_type != open_type:
            raise DataError(file, line, _transition_message(tag, open_type, scheme))
        if starts_entity:
            _check_entity_closed(open_type, scheme, tag, file, line)
        bio_tags.append(f"{'B' if starts_entity else 'I'}-{entity_type}")
        open_type = None if prefix in (end_prefix, single_prefix) else entity_type
    _check_entity_closed(open_type, scheme, "the end of the sentence", file, lines[-1] if lines else 0)
    return tuple(bio_tags)


def bio_of_sentence(tags: Sequence[str], file: Path, line: int) -> tuple[str, ...]:
    """Convert the tags of a sentence that stands on one line, whose scheme is detected from this sentence alone."""
    scheme = detect_scheme([tags])
    if scheme in (Scheme.BIO, Scheme.IOB1):
        scheme = Scheme.LENIENT  # one sentence is not enough to tell them apart; LENIENT reads both
    return to_bio(tags, scheme, file, [line] * len(tags))


def _split_tag(tag: str, scheme: Scheme, file: Path, line: int) -> tuple[str, str]:
    match = TAG_PATTERN.fullmatch(tag)
    prefixes = SCHEME_PREFIXES[scheme]
    if match is None or match[1] not in prefixes:
        expected = ", ".join(f"{prefix}-TYPE" for prefix in prefixes)
        raise DataError(file, line, f"invalid tag {tag!r}: expected O, {expected} (scheme {scheme.value})")
    return match[1], match[2]


def _check_entity_closed(open_type: str | None, scheme: Scheme, tag: str, file: Path, line: int) -> None:
    """Raise an error if an entity is still open, in schemes that mark the last word of an entity."""
    if open_type is not None and scheme in END_PREFIXES:
        last = f"{END_PREFIXES[scheme][0]}-{open_type}"
        message = f"{tag} before entity {open_type} is closed: in {scheme.value} it must end with {last}"
        raise DataError(file, line, message)


def _transition_message(tag: str, open_type: str | None, scheme: Scheme) -> str:
    previous = "no entity" if open_type is None else f"an entity {open_type}"
    return (
        f"tag {tag} follows {previous}: in {scheme.value} an entity must start with B-. Fix the tag, or set the "
        f'scheme to "lenient", which starts an entity there'
    )
