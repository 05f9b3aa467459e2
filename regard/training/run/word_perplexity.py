"""How many words a text has, for perplexity by word: the same number whatever the tokenizer.

The standard of WikiText: words are what stands between blanks, and each end of a line is one more (`<eos>`). Counted is
what the network has to say, and nothing else, so that the sum of its losses belongs to these words:

- an end of line, where the tokenizer keeps it; the end of a document, where a token stands for it;
- not the first word of a row that begins without a special token: nobody predicts its first token. (Of a file that is
  one document this is one word in 100,000 characters; of documents that are lines, one of each line.)
"""

from __future__ import annotations

from collections.abc import Iterable

from regard.data.encoders.encoder_base import Frame
from regard.data.example import Plain
from regard.tokenization.tokenizer import Tokenizer


def count(documents: Iterable[Plain], tokenizer: Tokenizer) -> int:
    """The words of these documents that are predicted, ends of lines included."""
    frame = Frame.of(tokenizer).with_end(tokenizer.special.end)
    keeps_lines = "\n" in tokenizer.decode(tokenizer.encode("a\nb", special_tokens=False).ids)
    total = 0
    for document in documents:
        total += len(document.text.split())
        total += document.text.count("\n") if keeps_lines else 0
        total += bool(frame.after and document.ends)
        total -= not (frame.before and document.begins)
    return total
