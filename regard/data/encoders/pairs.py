"""Pairs: a source and a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from regard.data.encoders.encoder_base import Chunk, Columns, Frame, describe, ids_type, nothing_left
from regard.data.example import Pair
from regard.data.length_policy import Cuts, Long, Windowed, spans
from regard.data.ragged import Ragged
from regard.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Columns `source` and `target`, each with the special tokens that its tokenizer adds; the target always ends with
    the end token where the vocabulary has one.
    """

    tokenizer: Tokenizer
    source: Long | None = None
    """What to do with a long source. There are no windows: part of a text has no translation of its own."""
    target: Long | None = None
    source_language: str | None = None
    target_language: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.source, Windowed) or isinstance(self.target, Windowed):
            raise ValueError("pairs cannot be windowed, as nobody knows which part belongs to which: use Cut or Refuse")

    @property
    def kind(self) -> type[Pair]:
        """Pairs."""
        return Pair

    @property
    def columns(self) -> Columns:
        """`source` and `target`."""
        return {"source": ids_type(self.tokenizer), "target": ids_type(self.tokenizer.target)}

    def fingerprint(self) -> Mapping[str, object]:
        """What the rows depend on."""
        return {
            "encoder": "pairs",
            "tokenizer": self.tokenizer.fingerprint(),
            "long": [describe(self.source), describe(self.target)],
            "languages": [self.source_language, self.target_language],
        }

    @cached_property
    def frames(self) -> tuple[Frame, Frame, list[int]]:
        """The special tokens around source and target, and those that have to be put behind the target."""
        target = Frame.of(self.tokenizer.target)
        ended = target.with_end(self.tokenizer.target.special.end)
        return Frame.of(self.tokenizer), ended, ended.after[len(target.after) :]

    def encode(self, examples: Sequence[Pair]) -> Chunk:
        """Two rows of ids for each pair."""
        sources = self.tokenizer.ids_of([one.source for one in examples], language=self.source_language)
        targets = self.tokenizer.target.ids_of([one.target for one in examples], language=self.target_language)
        around_source, around_target, ending = self.frames
        if ending:
            targets = [[*row, *ending] for row in targets]
        cuts = _shorten(examples, sources, self.source, around_source)
        cuts += _shorten(examples, targets, self.target, around_target)
        for example, source, target in zip(examples, sources, targets, strict=True):
            if not source or not target:
                raise nothing_left(example, "target" if source else "source")
        types = self.columns
        rows = {"source": Ragged.of(sources, types["source"]), "target": Ragged.of(targets, types["target"])}
        return Chunk(rows, cuts)


def _shorten(examples: Sequence[Pair], rows: list[list[int]], rule: Long | None, around: Frame) -> Cuts:
    """Cut what is too long, in place. Special tokens at the end stay."""
    total = Cuts()
    if rule is None:
        return total
    for number, (example, row) in enumerate(zip(examples, rows, strict=True)):
        if len(row) > rule.length:
            text, after = len(row) - len(around), len(row) - len(around.after)
            (part,), cuts = spans(rule, text, len(around), example.file, example.line)
            rows[number] = row[: len(around.before) + part[1]] + row[after:]
            total += cuts
    return total
