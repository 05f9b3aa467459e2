"""Pairs: a source and a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regard.data.encoders.base import Chunk, Columns, describe, ids_type, nothing_left
from regard.data.example import Pair
from regard.data.ragged import Ragged
from regard.data.windows import Cuts, Long, Windowed, spans
from regard.text.tokenizer import Tokenizer


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

    def encode(self, examples: Sequence[Pair]) -> Chunk:
        """Two rows of ids for each pair."""
        target = self.tokenizer.target
        sources = self.tokenizer.ids_of([one.source for one in examples], language=self.source_language)
        targets = target.ids_of([one.target for one in examples], language=self.target_language)
        cuts = _shorten(examples, sources, self.source, self.tokenizer.special.end)
        if (end := target.special.end) is not None:
            for row in targets:
                if not row or row[-1] != end:
                    row.append(end)
        cuts += _shorten(examples, targets, self.target, end)
        for example, source, row in zip(examples, sources, targets, strict=True):
            if not source or not row:
                raise nothing_left(example, "target" if source else "source")
        types = self.columns
        rows = {"source": Ragged.of(sources, types["source"]), "target": Ragged.of(targets, types["target"])}
        return Chunk(rows, cuts)


def _shorten(examples: Sequence[Pair], rows: list[list[int]], rule: Long | None, end: int | None) -> Cuts:
    """Cut what is too long, in place. An end token stays at the end."""
    total = Cuts()
    if rule is None:
        return total
    for number, row in enumerate(rows):
        if len(row) > rule.length:
            ending = [end] if end is not None and row[-1] == end else []
            (part,), cuts = spans(
                rule, len(row) - len(ending), len(ending), examples[number].file, examples[number].line
            )
            rows[number] = row[: part[1]] + ending
            total += cuts
    return total
