"""Checks of tag sequences against their tagging scheme."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regard.data.formats import Scheme
from regard.data.tag_schemes import END_PREFIXES, OUTSIDE, SCHEME_PREFIXES, SchemeDetector, bio_of_sentence
from regard.doctor import finding_kinds
from regard.doctor.finding import FindingCollector, FindingKind
from regard.doctor.label_checks import LabelCheck
from regard.doctor.split_reader import SplitBatch
from regard.tokenization.text_files import DataError

ANY_TAG_PATTERN = re.compile(r"([A-Z])-(.+)", re.DOTALL)
SENTENCE_EDGE = "the sentence boundary"
MAX_SENTENCE_WORDS = 500
"""Longer sentences are reported: probably the empty lines between sentences are missing."""


@dataclass
class _FileTags:
    """Tag transitions of a file. They are checked at the end, because only then the scheme is known."""

    detector: SchemeDetector = field(default_factory=SchemeDetector)
    transitions: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """For each pair of successive tags: the count, then the first lines. SENTENCE_EDGE is a sentence boundary."""


class TagCheck:
    """Invalid tag transitions, malformed tags, entity types that change inside an entity, and tag counts.

    `scheme` is that of the format; None if it is detected from all tags of a file. Sentences on one line (JSON Lines)
    are checked one by one, as they are read.
    """

    def __init__(self, collector: FindingCollector, scheme: Scheme | None = None) -> None:
        self.collector, self.scheme = collector, scheme
        self.files: dict[Path, _FileTags] = defaultdict(_FileTags)
        self.labels = LabelCheck(collector, "tag")

    def update(self, batch: SplitBatch) -> None:
        """Collect the tags of a batch of sentences."""
        word_lines = batch.fields.get("word_lines") or [
            [line] * len(tags) for line, tags in zip(batch.lines, batch.fields["tags"], strict=True)
        ]
        detector, transitions = self.files[batch.file].detector, defaultdict[tuple[str, str], list[int]](list)
        by_word = "word_lines" in batch.fields
        for lines, words, tags in zip(word_lines, batch.fields["words"], batch.fields["tags"], strict=True):
            if not words:
                continue
            if not by_word:
                self._check_sentence(batch.file, lines[0], tags)
            if len(words) == 1:
                self.collector.add_line(finding_kinds.ONE_WORD, batch.file, lines[0], words[0])
            if len(words) > MAX_SENTENCE_WORDS:
                self.collector.add_line(finding_kinds.LONG_SENTENCE, batch.file, lines[0], " ".join(words[:20]))
            detector.update(filter(None, tags))
            before = SENTENCE_EDGE
            for line, tag in zip(lines, tags, strict=True):
                transitions[before, tag].append(line)
                before = tag
            transitions[before, SENTENCE_EDGE].append(lines[-1])
        self._count_transitions(batch, transitions, by_word)

    def _check_sentence(self, file: Path, line: int, tags: Sequence[str]) -> None:
        """Check a sentence on one line by converting its tags, as training does."""
        try:
            bio_of_sentence(tags, file, line)
        except DataError as error:
            self.collector.add_line(finding_kinds.TAG_SEQUENCE, file, line, error.message)

    def _count_transitions(
        self, batch: SplitBatch, transitions: Mapping[tuple[str, str], list[int]], by_word: bool
    ) -> None:
        """Add transitions with their lines. Missing tags ("") are skipped: the reader has reported them."""
        max_lines, totals = self.collector.max_lines, self.files[batch.file].transitions
        for (before, tag), lines in transitions.items():
            if tag not in ("", SENTENCE_EDGE):
                self.labels.add(batch.split, str(batch.file), tag, lines)
            if before and tag and by_word:
                count, *first = totals.get((before, tag), [0])
                totals[before, tag] = [count + len(lines), *[*first, *lines[:max_lines]][:max_lines]]

    def finish(self) -> None:
        """Check all transitions, now that the scheme of each file is known."""
        for path, file in self.files.items():
            scheme = self.scheme or file.detector.scheme
            if scheme is Scheme.PLAIN:
                continue
            examples = defaultdict[str, list[tuple[int, str]]](list)
            counts = defaultdict[str, int](int)
            for (before, tag), (count, *lines) in file.transitions.items():
                kind = transition_fault(before, tag, scheme)
                if kind:
                    counts[kind.name] += count
                    examples[kind.name] += [(line, f"{tag} after {before}") for line in lines]
            for name, lines_and_tags in examples.items():
                self._add_transitions(finding_kinds.KINDS[name], path, scheme, sorted(lines_and_tags), counts[name])
        self.labels.finish()

    def _add_transitions(
        self, kind: FindingKind, path: Path, scheme: Scheme, examples: Sequence[tuple[int, str]], count: int
    ) -> None:
        message = kind.message + f" (the scheme is {scheme.value})"
        lines, texts = [line for line, _ in examples], [f"line {line}: {text}" for line, text in examples]
        self.collector.add_file(kind, path, message, lines=lines, count=count, examples=texts)


def transition_fault(before: str, tag: str, scheme: Scheme) -> FindingKind | None:
    """Return the problem of a tag after another one, or None; SENTENCE_EDGE is the boundary of a sentence."""
    prefix, entity_type = _split_tag(tag)
    if prefix not in (SENTENCE_EDGE, OUTSIDE, *SCHEME_PREFIXES[scheme]):
        return finding_kinds.BAD_TAG
    previous_prefix, previous_type = _split_tag(before)
    if previous_prefix not in (SENTENCE_EDGE, OUTSIDE, *SCHEME_PREFIXES[scheme]):
        return None  # reported at its own line
    end_prefix = END_PREFIXES.get(scheme, "-")[0]
    is_open = previous_prefix in ("B", "I")
    if prefix in ("I", end_prefix) and scheme not in (Scheme.IOB1, Scheme.LENIENT):
        if not is_open:
            return finding_kinds.TAG_SEQUENCE
        return finding_kinds.TAG_TYPE if entity_type != previous_type else None
    if scheme is Scheme.IOB1 and prefix == "B" and entity_type != previous_type:
        return finding_kinds.TAG_SEQUENCE
    return finding_kinds.TAG_SEQUENCE if scheme in END_PREFIXES and is_open else None


def _split_tag(tag: str) -> tuple[str, str]:
    """Split a tag into its prefix and its entity type; the prefix of a malformed tag is "?"."""
    if tag in (SENTENCE_EDGE, OUTSIDE):
        return tag, ""
    match = ANY_TAG_PATTERN.fullmatch(tag)
    return (match[1], match[2]) if match else ("?", tag)
