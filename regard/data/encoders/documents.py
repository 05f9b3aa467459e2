"""Encoder for documents (plain text)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from regard.data.encoders.encoder_base import (
    ColumnTypes,
    EncodedExamples,
    SpecialTokenTemplate,
    iter_windows,
    no_tokens_error,
    policy_to_json,
    token_dtype,
)
from regard.data.example import Document
from regard.data.length_policy import LengthPolicy, TruncationStats
from regard.data.ragged import RaggedArray
from regard.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class DocumentEncoder:
    """Encode a document to one column `tokens`: its ids, the special tokens of the tokenizer, and EOS at the end.

    Without a length policy, documents stay complete, and `PackedBatching` splits them into chunks. With a sliding
    window, each window has its own special tokens, as masked language models expect.
    """

    tokenizer: Tokenizer
    length_policy: LengthPolicy | None = None

    @property
    def example_type(self) -> type[Document]:
        """`Document`."""
        return Document

    @property
    def columns(self) -> ColumnTypes:
        """`tokens`."""
        return {"tokens": token_dtype(self.tokenizer)}

    def fingerprint(self) -> Mapping[str, object]:
        """Return everything the rows depend on. Part of the cache key."""
        return {
            "encoder": "documents",
            "tokenizer": self.tokenizer.fingerprint(),
            "long": policy_to_json(self.length_policy),
        }

    @cached_property
    def template(self) -> SpecialTokenTemplate:
        """Special tokens before and after a document."""
        return SpecialTokenTemplate.from_tokenizer(self.tokenizer).with_eos(self.tokenizer.special_ids.eos)

    def encode(self, examples: Sequence[Document]) -> EncodedExamples:
        """Encode each document to one row, or to one row per window."""
        token_ids = self.tokenizer.encode_batch_ids([example.text for example in examples], add_special_tokens=False)
        prefix, suffix = self.template.prefix, self.template.suffix
        rows, total = [], TruncationStats()
        for index, start, end, stats in iter_windows(examples, token_ids, self.length_policy, len(self.template)):
            example, ids = examples[index], token_ids[index]
            window = ids if end - start == len(ids) else ids[start:end]
            always = self.length_policy is not None  # each row is an input of its own
            has_prefix, has_suffix = example.starts_document or always, example.ends_document or always
            rows.append([*(prefix if has_prefix else ()), *window, *(suffix if has_suffix else ())])
            if not rows[-1]:
                raise no_tokens_error(example, "document")
            total += stats
        return EncodedExamples({"tokens": RaggedArray.from_rows(rows, self.columns["tokens"])}, total)
