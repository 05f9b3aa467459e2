"""Word counts for word-level perplexity, which does not depend on the tokenizer.

As on WikiText, words are separated by white space, and each end of a line counts as one more (`<eos>`). Only words that
the model predicts are counted, so that the sum of its losses belongs to them:

- an end of line counts if the tokenizer keeps it; the end of a document counts if it has a token;
- the first word of a sequence without a special token at its start does not count, because its first token is not
  predicted. (A file that is one document is read in parts of 100,000 characters, so this is one word per part; if
  lines are documents, it is one word per line.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from regard.data.encoders.encoder_base import SpecialTokenTemplate
from regard.data.example import Document
from regard.tokenization.tokenizer import Tokenizer


def count_predicted_words(documents: Iterable[Document], tokenizer: Tokenizer) -> int:
    """Count the words of these documents that are predicted, including ends of lines."""
    template = SpecialTokenTemplate.from_tokenizer(tokenizer).with_eos(tokenizer.special_ids.eos)
    keeps_lines = "\n" in tokenizer.decode(tokenizer.encode("a\nb", add_special_tokens=False).ids)
    total = 0
    for document in documents:
        total += len(document.text.split())
        total += document.text.count("\n") if keeps_lines else 0
        total += bool(template.suffix and document.ends_document)
        total -= not (template.prefix and document.starts_document)
    return total


@dataclass(frozen=True)
class TextSize:
    """The size of the validation data, apart from the tokenizer."""

    words: int
    """Number of words that are predicted, including ends of lines."""
    characters: int
    """Number of characters."""


def measure_text(documents: Iterable[Document], tokenizer: Tokenizer) -> TextSize:
    """Count the predicted words and the characters of these documents."""
    characters = 0

    def counted() -> Iterator[Document]:
        nonlocal characters
        for document in documents:
            characters += len(document.text)
            yield document

    words = count_predicted_words(counted(), tokenizer)
    return TextSize(words, characters)
