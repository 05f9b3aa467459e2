"""What to train, and how: the options of word2vec (with or without character n-grams) and of GloVe."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum


class Kind(Enum):
    """What predicts what."""

    SKIPGRAM = "skipgram"
    """Each word of the window predicts the centre word, one at a time (the order in which word2vec computes it)."""
    CBOW = "cbow"
    """The mean of the words in the window predicts the centre word."""


class Tokens(Enum):
    """How a line is divided into words."""

    WHITESPACE = "whitespace"
    """At white space: punctuation stays with its word. For text that is tokenized already."""
    WORDS = "words"
    """Runs of letters and digits, with apostrophes inside: punctuation is dropped."""


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How texts are read, and which words get a vector."""

    tokens: Tokens = Tokens.WHITESPACE
    """How a line is divided into words."""
    lowercase: bool = False
    """Lowercase the text first."""
    min_count: int = 5
    """Rarer words are dropped, as if they were not in the text."""
    max_vocabulary: int | None = None
    """Keep only this many of the most frequent words."""
    phrases: int = 0
    """Passes that join frequent pairs of words: `new york` becomes `new_york`; a second pass makes longer phrases."""
    phrase_threshold: float = 100.0
    """The score that a pair needs to be joined: higher means fewer phrases."""

    def __post_init__(self) -> None:
        _check(self, positive=("min_count", "max_vocabulary", "phrase_threshold"), zero_allowed=("phrases",))


@dataclass(frozen=True, kw_only=True)
class CharacterNgrams:
    """Character n-grams of words, as in fastText: a word's vector is the mean of its own and those of its n-grams."""

    shortest: int = 3
    """Characters of the shortest n-gram. The word has `<` before and `>` after it."""
    longest: int = 6
    """Characters of the longest n-gram."""
    buckets: int = 2_000_000
    """Number of n-gram vectors; n-grams with the same hash share one."""

    def __post_init__(self) -> None:
        _check(self, positive=("shortest", "longest", "buckets"))
        if self.shortest > self.longest:
            raise ValueError(f"n-grams of {self.shortest} to {self.longest} characters: expected shortest ≤ longest")


@dataclass(frozen=True, kw_only=True)
class Word2VecOptions:
    """Word2vec. The defaults of `sample`, `lr` and `epochs` are those of the comparison in docs/vectors.md."""

    kind: Kind = Kind.SKIPGRAM
    """Skip-gram or CBOW."""
    dim: int = 100
    """Numbers in a vector."""
    window: int = 5
    """Largest distance between two words; the actual one is drawn from 1 to `window` for each centre word."""
    negative: int = 5
    """Negative samples for each prediction; 0: none."""
    hierarchical_softmax: bool = False
    """Predict the path of the word in a Huffman tree (with `negative = 0`: instead of negative sampling)."""
    ngrams: CharacterNgrams | None = None
    """Character n-grams, as in fastText."""
    sample: float = 1e-4
    """Subsampling: words with a share of the text above this are dropped at random; 0: none."""
    lr: float = 0.05
    """Learning rate at the start."""
    min_lr: float = 1e-4
    """Learning rate at the end; it falls linearly."""
    epochs: int = 5
    """Passes over the text."""
    threads: int = 1
    """Threads that change the vectors at the same time, without locks (Hogwild). One thread is deterministic."""
    seed: int = 1
    """Seed of the initial vectors and all samples."""

    def __post_init__(self) -> None:
        _check(
            self, positive=("dim", "window", "lr", "epochs", "threads"), zero_allowed=("negative", "sample", "min_lr")
        )
        if not self.negative and not self.hierarchical_softmax:
            raise ValueError("negative is 0: set hierarchical_softmax, or there is nothing to predict")


@dataclass(frozen=True, kw_only=True)
class GloveOptions:
    """GloVe: word vectors whose products fit the logarithms of co-occurrence counts."""

    dim: int = 100
    """Numbers in a vector."""
    window: int = 10
    """Largest distance between two words; a pair at distance d counts 1/d."""
    x_max: float = 100.0
    """Pairs that are more frequent have full weight."""
    alpha: float = 0.75
    """Exponent of the weight of less frequent pairs."""
    lr: float = 0.05
    """Learning rate of AdaGrad."""
    epochs: int = 15
    """Passes over the co-occurrence counts."""
    threads: int = 1
    """Threads that change the vectors at the same time, without locks. One thread is deterministic."""
    seed: int = 1
    """Seed of the initial vectors and of the order."""

    def __post_init__(self) -> None:
        _check(self, positive=("dim", "window", "x_max", "alpha", "lr", "epochs", "threads"))


def _check(options: object, *, positive: tuple[str, ...], zero_allowed: tuple[str, ...] = ()) -> None:
    for field in fields(options):  # type: ignore[arg-type]
        value = getattr(options, field.name)
        if value is None:
            continue
        if field.name in positive and not value > 0:
            raise ValueError(f"{field.name} is {value}; expected a positive number")
        if field.name in zero_allowed and not value >= 0:
            raise ValueError(f"{field.name} is {value}; expected 0 or more")
