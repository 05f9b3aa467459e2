"""The kinds of vocabulary that can be trained, and what each does to a text."""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from regard.tokenization.tokenizer import Names

USUAL = Names(padding="<pad>", unknown="<unk>", begin="<s>", end="</s>")
BYTES = Names(padding="<pad>", begin="<s>", end="</s>")
BERT = Names(padding="[PAD]", unknown="[UNK]", separator="[SEP]", classify="[CLS]", mask="[MASK]")


@dataclass(frozen=True, kw_only=True)
class WordPiece:
    """BERT's: words, and pieces of words that begin with ##. Unknown characters are `[UNK]`; spaces are not kept."""

    size: int = 30_000
    lower: bool = False
    """Texts are lower-cased and lose their accents."""

    names = BERT

    def empty(self, unknown: str | None) -> Tokenizer:
        """The tokenizer before it has learnt anything."""
        core = Tokenizer(models.WordPiece({}, unk_token=str(unknown), max_input_chars_per_word=100))
        core.normalizer = normalizers.BertNormalizer(lowercase=self.lower)
        core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        core.decoder = decoders.WordPiece(prefix="##")
        return core


@dataclass(frozen=True, kw_only=True)
class ByteBPE:
    """GPT-2's: bytes joined by how often they stand together. Nothing is unknown, and every text comes back exactly."""

    size: int = 8_000

    names = BYTES

    def empty(self, unknown: str | None) -> Tokenizer:  # noqa: ARG002 (all kinds are asked alike)
        """The tokenizer before it has learnt anything."""
        core = Tokenizer(models.BPE())
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        core.decoder = decoders.ByteLevel()
        return core


@dataclass(frozen=True, kw_only=True)
class Unigram:
    """T5's: pieces chosen so that texts become likely. Characters are made regular (NFKC), spaces are joined."""

    size: int = 8_000

    names = USUAL

    def empty(self, unknown: str | None) -> Tokenizer:  # noqa: ARG002 (all kinds are asked alike)
        """The tokenizer before it has learnt anything."""
        core = Tokenizer(models.Unigram())
        core.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " ")])
        core.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
        core.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=True)
        return core


@dataclass(frozen=True, kw_only=True)
class Words:
    """What stands between spaces. All other words are unknown."""

    size: int = 30_000
    minimum: int = 1
    """Words that are met less often are left out."""

    names = USUAL

    def empty(self, unknown: str | None) -> Tokenizer:
        """The tokenizer before it has learnt anything."""
        core = Tokenizer(models.WordLevel({}, unk_token=str(unknown)))
        core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return core


@dataclass(frozen=True, kw_only=True)
class Characters:
    """Single characters, spaces and line ends included: a text of known characters comes back exactly."""

    size: int = 1_000
    minimum: int = 1
    """Characters that are met less often are left out."""

    names = USUAL

    def empty(self, unknown: str | None) -> Tokenizer:
        """The tokenizer before it has learnt anything."""
        core = Tokenizer(models.BPE(unk_token=unknown))
        core.decoder = decoders.Fuse()
        return core


Kind = WordPiece | ByteBPE | Unigram | Words | Characters
