"""Tokenization algorithms that can be trained, each with its normalization and pre-tokenization."""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from regard.tokenization.tokenizer import SpecialTokens
from regard.tokenization.vocab_files import BERT_TOKENS

DEFAULT_TOKENS = SpecialTokens(pad="<pad>", unk="<unk>", bos="<s>", eos="</s>")
BYTE_LEVEL_TOKENS = SpecialTokens(pad="<pad>", bos="<s>", eos="</s>")


@dataclass(frozen=True, kw_only=True)
class WordPiece:
    """WordPiece, as in BERT: words, and subwords marked with ##. Unknown words become `[UNK]`; whitespace is lost."""

    size: int = 30_000
    lowercase: bool = False
    """Lowercase texts and strip accents."""

    special_tokens = BERT_TOKENS

    def build_untrained(self, unk_token: str | None) -> Tokenizer:
        """Build the backend with an empty vocabulary."""
        backend = Tokenizer(models.WordPiece({}, unk_token=str(unk_token), max_input_chars_per_word=100))
        backend.normalizer = normalizers.BertNormalizer(lowercase=self.lowercase)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.decoder = decoders.WordPiece(prefix="##")
        return backend


@dataclass(frozen=True, kw_only=True)
class ByteBPE:
    """Byte-level BPE, as in GPT-2: frequent byte pairs are merged. No text is unknown, and encoding is lossless."""

    size: int = 8_000

    special_tokens = BYTE_LEVEL_TOKENS

    def build_untrained(self, unk_token: str | None) -> Tokenizer:  # noqa: ARG002 (same signature for all algorithms)
        """Build the backend with an empty vocabulary."""
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        return backend


@dataclass(frozen=True, kw_only=True)
class Unigram:
    """Unigram language model (Kudo 2018), as in T5. Texts are NFKC-normalized; runs of whitespace become one space."""

    size: int = 8_000

    special_tokens = DEFAULT_TOKENS

    def build_untrained(self, unk_token: str | None) -> Tokenizer:  # noqa: ARG002 (same signature for all algorithms)
        """Build the backend with an empty vocabulary."""
        backend = Tokenizer(models.Unigram())
        backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " ")])
        backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
        backend.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=True)
        return backend


@dataclass(frozen=True, kw_only=True)
class WordLevel:
    """Whole words, split at whitespace. Words outside the vocabulary become the unknown token."""

    size: int = 30_000
    min_frequency: int = 1
    """Leave out words that occur less often."""

    special_tokens = DEFAULT_TOKENS

    def build_untrained(self, unk_token: str | None) -> Tokenizer:
        """Build the backend with an empty vocabulary."""
        backend = Tokenizer(models.WordLevel({}, unk_token=str(unk_token)))
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return backend


@dataclass(frozen=True, kw_only=True)
class CharacterLevel:
    """Single characters, including spaces and newlines: encoding is lossless for texts of known characters."""

    size: int = 1_000
    min_frequency: int = 1
    """Leave out characters that occur less often."""

    special_tokens = DEFAULT_TOKENS

    def build_untrained(self, unk_token: str | None) -> Tokenizer:
        """Build the backend with an empty vocabulary."""
        backend = Tokenizer(models.BPE(unk_token=unk_token))
        backend.decoder = decoders.Fuse()
        return backend


Algorithm = WordPiece | ByteBPE | Unigram | WordLevel | CharacterLevel
"""Any of the algorithms."""
