"""Small tokenizers, and corpora made with them."""

import numpy as np
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from regard.data.corpus import Column, Corpus
from regard.tokenization.tokenizer import Names, Tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz.?!,'0123456789"


def words(*vocabulary, end="</s>"):
    """Words between blanks; the end token is added to every text."""
    known = {word: number for number, word in enumerate(["<pad>", "<unk>", "</s>", *vocabulary])}
    core = tokenizers.Tokenizer(models.WordLevel(known, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if end is not None:
        core.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    core.add_special_tokens(["<pad>", "</s>"])
    return Tokenizer(core, Names(padding="<pad>", unknown="<unk>", end="</s>"))


def without_specials():
    """Words between blanks, and nothing around them: not even an end."""
    core = tokenizers.Tokenizer(models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Tokenizer(core, Names(unknown="<unk>"))


def characters(*more):
    """BERT's layout with a letter as each piece: pairs of texts, and offsets that are easy to count."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *LETTERS, *(f"##{letter}" for letter in LETTERS), *more]
    known = {piece: number for number, piece in enumerate(pieces)}
    core = tokenizers.Tokenizer(models.WordPiece(known, unk_token="[UNK]"))
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    core.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
    return Tokenizer(core, Names(padding="[PAD]", unknown="[UNK]", classify="[CLS]", separator="[SEP]"))


class Lengths(Corpus):
    """A corpus that is nothing but lengths: its values count from 0 to the end, so that each can be told from all."""

    def __init__(self, **columns):
        self.columns = {}
        for name, lengths in columns.items():
            self.columns[name] = Column(
                np.arange(sum(lengths)), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            )
            self.rows = len(lengths)
