"""Documents: text alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from regard.data.encoders.encoder_base import Chunk, Columns, Frame, describe, ids_type, in_windows, nothing_left
from regard.data.example import Plain
from regard.data.length_policy import Cuts, Long
from regard.data.ragged import Ragged
from regard.tokenization.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Documents:
    """One column `tokens`: a document with the special tokens that its tokenizer adds, and the end token behind it.

    Without a rule for long documents they stay whole, and `Packed` batches cut them as they need. With windows, each
    window has the special tokens around it, as models that fill in words expect.
    """

    tokenizer: Tokenizer
    long: Long | None = None

    @property
    def kind(self) -> type[Plain]:
        """Plain text."""
        return Plain

    @property
    def columns(self) -> Columns:
        """`tokens`."""
        return {"tokens": ids_type(self.tokenizer)}

    def fingerprint(self) -> Mapping[str, object]:
        """What the rows depend on."""
        return {"encoder": "documents", "tokenizer": self.tokenizer.fingerprint(), "long": describe(self.long)}

    @cached_property
    def frame(self) -> Frame:
        """The special tokens around a document."""
        return Frame.of(self.tokenizer).with_end(self.tokenizer.special.end)

    def encode(self, examples: Sequence[Plain]) -> Chunk:
        """One row for each document, or several where it is windowed."""
        found = self.tokenizer.ids_of([one.text for one in examples], special_tokens=False)
        before, after = self.frame.before, self.frame.after
        rows, total = [], Cuts()
        for number, begin, end, cuts in in_windows(examples, found, self.long, len(self.frame)):
            text = found[number] if end - begin == len(found[number]) else found[number][begin:end]
            whole = self.long is not None
            first, last = examples[number].begins or whole, examples[number].ends or whole
            rows.append([*(before if first else ()), *text, *(after if last else ())])
            if not rows[-1]:
                raise nothing_left(examples[number], "document")
            total += cuts
        return Chunk({"tokens": Ragged.of(rows, self.columns["tokens"])}, total)
