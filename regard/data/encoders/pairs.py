"""Encoder for pairs of source and target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from regard.data.encoders.encoder_base import (
    ColumnTypes,
    EncodedExamples,
    SpecialTokenTemplate,
    no_tokens_error,
    policy_to_json,
    token_dtype,
)
from regard.data.example import Pair
from regard.data.length_policy import LengthPolicy, SlidingWindow, TruncationStats, window_spans
from regard.data.ragged import RaggedArray
from regard.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class PairEncoder:
    """Encode to columns `source` and `target`, each with the special tokens of its tokenizer.

    EOS is always part of the target, if the vocabulary has one.
    """

    tokenizer: Tokenizer
    source_length_policy: LengthPolicy | None = None
    """Policy for long sources. No windows: windows of source and target would not correspond."""
    target_length_policy: LengthPolicy | None = None
    """Policy for long targets."""
    source_language: str | None = None
    target_language: str | None = None
    prefix: str = ""
    """Text before every source (T5: "summarize: ")."""

    def __post_init__(self) -> None:
        if isinstance(self.source_length_policy, SlidingWindow) or isinstance(self.target_length_policy, SlidingWindow):
            raise ValueError(
                "pairs cannot be split into windows (source and target windows would not correspond): "
                "use Truncation or StrictLength"
            )

    @property
    def example_type(self) -> type[Pair]:
        """`Pair`."""
        return Pair

    @property
    def columns(self) -> ColumnTypes:
        """`source` and `target`."""
        return {"source": token_dtype(self.tokenizer), "target": token_dtype(self.tokenizer.target)}

    def fingerprint(self) -> Mapping[str, object]:
        """Return everything the rows depend on. Part of the cache key."""
        return {
            "encoder": "pairs",
            "tokenizer": self.tokenizer.fingerprint(),
            "long": [policy_to_json(self.source_length_policy), policy_to_json(self.target_length_policy)],
            "languages": [self.source_language, self.target_language],
            **({"prefix": self.prefix} if self.prefix else {}),
        }

    @cached_property
    def templates(self) -> tuple[SpecialTokenTemplate, SpecialTokenTemplate, list[int]]:
        """Templates of source and target, and the suffix to append to each target (EOS, or nothing)."""
        target = SpecialTokenTemplate.from_tokenizer(self.tokenizer.target)
        with_eos = target.with_eos(self.tokenizer.target.special_ids.eos)
        return SpecialTokenTemplate.from_tokenizer(self.tokenizer), with_eos, with_eos.suffix[len(target.suffix) :]

    def encode(self, examples: Sequence[Pair]) -> EncodedExamples:
        """Encode each pair to a row of source ids and a row of target ids."""
        sources = self.tokenizer.encode_batch_ids(
            [self.prefix + example.source for example in examples], language=self.source_language
        )
        targets = self.tokenizer.target.encode_batch_ids(
            [example.target for example in examples], language=self.target_language
        )
        source_template, target_template, appended = self.templates
        if appended:
            targets = [[*ids, *appended] for ids in targets]
        stats = _truncate(examples, sources, self.source_length_policy, source_template)
        stats += _truncate(examples, targets, self.target_length_policy, target_template)
        for example, source, target in zip(examples, sources, targets, strict=True):
            if not source or not target:
                raise no_tokens_error(example, "target" if source else "source")
        dtypes = self.columns
        columns = {
            "source": RaggedArray.from_rows(sources, dtypes["source"]),
            "target": RaggedArray.from_rows(targets, dtypes["target"]),
        }
        return EncodedExamples(columns, stats)


def _truncate(
    examples: Sequence[Pair], rows: list[list[int]], policy: LengthPolicy | None, template: SpecialTokenTemplate
) -> TruncationStats:
    """Truncate long rows in place. The special tokens at the end are kept."""
    total = TruncationStats()
    if policy is None:
        return total
    for index, (example, row) in enumerate(zip(examples, rows, strict=True)):
        if len(row) > policy.max_length:
            text_length, suffix_start = len(row) - len(template), len(row) - len(template.suffix)
            (span,), stats = window_spans(policy, text_length, len(template), example.file, example.line)
            rows[index] = row[: len(template.prefix) + span[1]] + row[suffix_start:]
            total += stats
    return total
