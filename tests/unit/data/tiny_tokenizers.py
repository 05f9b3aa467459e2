"""Small tokenizers, and a corpus that consists of lengths."""

import numpy as np
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from regard.data.corpus import Column, Corpus
from regard.tokenization.tokenizer import SpecialTokens, Tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz.?!,'0123456789"


def words(*vocabulary, end="</s>"):
    """Words separated by spaces; EOS is appended to every text, unless `end` is None."""
    vocab = {word: index for index, word in enumerate(["<pad>", "<unk>", "</s>", *vocabulary])}
    core = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if end is not None:
        core.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    core.add_special_tokens(["<pad>", "</s>"])
    return Tokenizer(core, SpecialTokens(pad="<pad>", unk="<unk>", eos="</s>"))


def without_specials():
    """Words separated by spaces, without special tokens."""
    core = tokenizers.Tokenizer(models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Tokenizer(core, SpecialTokens(unk="<unk>"))


def characters(*more):
    """BERT's template with one token per letter: supports pairs of texts, and offsets are easy to count."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *LETTERS, *(f"##{letter}" for letter in LETTERS), *more]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    core = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    core.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
    return Tokenizer(core, SpecialTokens(pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]"))


class LengthsCorpus(Corpus):
    """A corpus with rows of the given lengths. Its values count from 0, so that each is unique."""

    def __init__(self, **columns):
        self.columns = {}
        for name, lengths in columns.items():
            self.columns[name] = Column(
                np.arange(sum(lengths)), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            )
            self.num_rows = len(lengths)
