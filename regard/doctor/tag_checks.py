"""Checks of tags: do they follow each other as their scheme wants it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regard.data.formats import Scheme
from regard.data.tag_schemes import ENDS, LETTERS, OUTSIDE, Recogniser
from regard.doctor import finding_kinds
from regard.doctor.finding import Kind, Ledger
from regard.doctor.label_checks import Labels
from regard.doctor.tolerant_reader import Rows

MARKED = re.compile(r"([A-Z])-(.+)", re.DOTALL)
EDGE = "the sentence's edge"
LONG = 500
"""Words. No sentence is as long: the empty lines between sentences were lost."""


@dataclass
class _File:
    """A file's tags, held back until all have been seen: only then is the scheme known."""

    recogniser: Recogniser = field(default_factory=Recogniser)
    transitions: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """For each tag that follows another: how often, then the first lines. A sentence begins and ends with EDGE."""


class Tags:
    """Tags that may not follow the ones before, of another form, or of a type that changes within an entity."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.files: dict[Path, _File] = defaultdict(_File)
        self.labels = Labels(ledger, "tag")

    def see(self, rows: Rows) -> None:
        """Some sentences more."""
        at = rows.fields.get("at") or [
            [line] * len(tags) for line, tags in zip(rows.lines, rows.fields["tags"], strict=True)
        ]
        recogniser, steps = self.files[rows.file].recogniser, defaultdict[tuple[str, str], list[int]](list)
        for lines, words, tags in zip(at, rows.fields["words"], rows.fields["tags"], strict=True):
            if len(words) == 1:
                self.ledger.note(finding_kinds.ONE_WORD, rows.file, lines[0], words[0])
            if len(words) > LONG:
                self.ledger.note(finding_kinds.LONG_SENTENCE, rows.file, lines[0], " ".join(words[:20]))
            recogniser.see(filter(None, tags))
            before = EDGE
            for line, tag in zip(lines, tags, strict=True):
                steps[before, tag].append(line)
                before = tag
            steps[before, EDGE].append(lines[-1])
        self._add(rows, steps)

    def _add(self, rows: Rows, steps: Mapping[tuple[str, str], list[int]]) -> None:
        """Steps from tag to tag, with their lines. A tag that is missing ("") was noted when it was read."""
        shown, transitions = self.ledger.shown, self.files[rows.file].transitions
        for (before, tag), lines in steps.items():
            if tag not in ("", EDGE):
                self.labels.add(rows.split, str(rows.file), tag, lines)
            if before and tag:
                count, *first = transitions.get((before, tag), [0])
                transitions[before, tag] = [count + len(lines), *[*first, *lines[:shown]][:shown]]

    def finish(self) -> None:
        """Judge every step from tag to tag, now that each file's scheme is known."""
        for path, file in self.files.items():
            scheme = file.recogniser.scheme
            if scheme is Scheme.PLAIN:
                continue
            found = defaultdict[str, list[tuple[int, str]]](list)
            counts = defaultdict[str, int](int)
            for (before, tag), (count, *lines) in file.transitions.items():
                kind = fault(before, tag, scheme)
                if kind:
                    counts[kind.name] += count
                    found[kind.name] += [(line, f"{tag} after {before}") for line in lines]
            for name, places in found.items():
                self._say(finding_kinds.KINDS[name], path, scheme, sorted(places), counts[name])
        self.labels.finish()

    def _say(self, kind: Kind, path: Path, scheme: Scheme, places: Sequence[tuple[int, str]], count: int) -> None:
        said = kind.said + f" (the scheme is {scheme.value})"
        examples = [f"line {line}: {text}" for line, text in places]
        self.ledger.say(kind, path, said, lines=[line for line, _ in places], count=count, examples=examples)


def fault(before: str, tag: str, scheme: Scheme) -> Kind | None:
    """What is wrong with a tag after another in a scheme; EDGE stands for the bounds of a sentence."""
    letter, kind = _parts(tag)
    if letter not in (EDGE, OUTSIDE, *LETTERS[scheme]):
        return finding_kinds.BAD_TAG
    last, inside = _parts(before)
    if last not in (EDGE, OUTSIDE, *LETTERS[scheme]):
        return None  # it was noted at its own line
    ending = ENDS.get(scheme, "-")[0]
    open_ = last in ("B", "I")
    if letter in ("I", ending) and (scheme is not Scheme.IOB1):
        if not open_:
            return finding_kinds.TAG_SEQUENCE
        return finding_kinds.TAG_TYPE if kind != inside else None
    if scheme is Scheme.IOB1 and letter == "B" and kind != inside:
        return finding_kinds.TAG_SEQUENCE
    return finding_kinds.TAG_SEQUENCE if scheme in ENDS and open_ else None


def _parts(tag: str) -> tuple[str, str]:
    """The letter and the type of a tag; the letter of another form is "?"."""
    if tag in (EDGE, OUTSIDE):
        return tag, ""
    found = MARKED.fullmatch(tag)
    return (found[1], found[2]) if found else ("?", tag)
