"""Training word vectors from text files: `regard.vectors.train`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.progress import Progress
from regard.vectors.fasttext_file import from_input_rows
from regard.vectors.glove import train_glove
from regard.vectors.hogwild import EpochReport, train_word2vec
from regard.vectors.vector_options import CharacterNgrams, GloveOptions, Kind, TextOptions, Tokens, Word2VecOptions
from regard.vectors.word_corpus import WordCorpus, encode
from regard.vectors.word_kernels import load_kernels
from regard.vectors.word_vectors import WordVectors

KINDS = ("skipgram", "cbow", "glove")

Note = Callable[[str], None]


def train(
    files: str | Path | Sequence[str | Path],
    *,
    kind: str | Kind = "skipgram",
    ngrams: tuple[int, int] | CharacterNgrams | None = None,
    tokens: str | Tokens = Tokens.WHITESPACE,
    note: Note = lambda _: None,
    **options: Any,
) -> WordVectors:
    """Train word vectors on text files, one sentence per line.

        vectors = regard.vectors.train("text.txt", dim=100, kind="skipgram")
        vectors = regard.vectors.train(["a.txt", "b.txt.xz"], kind="glove", epochs=25, threads=2)

    Args:
        files: text files in UTF-8; .gz, .bz2 and .xz are decompressed.
        kind: "skipgram", "cbow" or "glove".
        ngrams: shortest and longest character n-gram, as (3, 6): fastText.
        tokens: "whitespace", or "words" to drop punctuation.
        note: called with a line of text after each epoch and for warnings.
        options: fields of `TextOptions`, and of `Word2VecOptions` or `GloveOptions`.
    """
    paths = [Path(files)] if isinstance(files, str | Path) else [Path(file) for file in files]
    if not paths:
        raise ValueError("no files: expected at least one text file")
    text_names = {field.name for field in fields(TextOptions)} & options.keys()
    text = TextOptions(tokens=Tokens(tokens), **_typed(TextOptions, {name: options.pop(name) for name in text_names}))
    if kind == "glove":
        if ngrams is not None:
            raise ValueError("ngrams: GloVe has none; use kind 'skipgram' or 'cbow'")
        return train_files(paths, text, GloveOptions(**_typed(GloveOptions, options)), note)
    if not isinstance(kind, Kind) and kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; expected {', '.join(KINDS)}")
    if isinstance(ngrams, tuple):
        ngrams = CharacterNgrams(shortest=ngrams[0], longest=ngrams[1])
    if ngrams is not None and "buckets" in options:
        ngrams = replace(ngrams, buckets=options.pop("buckets"))
    word2vec = Word2VecOptions(kind=Kind(kind), ngrams=ngrams, **_typed(Word2VecOptions, options))
    return train_files(paths, text, word2vec, note)


def train_files(
    files: Sequence[Path], text: TextOptions, options: Word2VecOptions | GloveOptions, note: Note = lambda _: None
) -> WordVectors:
    """Train with options as dataclasses; see `train`."""
    with tempfile.TemporaryDirectory(prefix="regard-vectors-") as folder:
        corpus = encode(files, text, Path(folder), note)
        note(f"{len(corpus.vocabulary):,} words with a vector, which occur {corpus.vocabulary.total:,} times")
        if (reason := load_kernels()[1]) != "in use":
            note(f"the C loop is not used ({reason}): training takes hundreds of times longer")
        if isinstance(options, GloveOptions):
            return train_glove(corpus, options, note)
        return _train_word2vec(corpus, options, note)


def _train_word2vec(corpus: WordCorpus, options: Word2VecOptions, note: Note) -> WordVectors:
    with Progress("training", total=options.epochs * len(corpus.tokens)) as progress:

        def report(epoch: EpochReport) -> None:
            note(
                f"epoch {epoch.epoch} of {options.epochs}: loss {epoch.loss:.4f}, "
                f"{epoch.words_per_second:,.0f} words per second"
            )

        inputs, _ = train_word2vec(corpus, options, report, progress.advance)
    vocabulary = corpus.vocabulary
    inputs = inputs[:, : options.dim]
    if not np.isfinite(inputs).all():
        raise ValueError("the vectors contain NaN or infinity: use a smaller learning rate (lr)")
    if options.ngrams is not None:
        return from_input_rows(vocabulary.words, vocabulary.counts, inputs, options.ngrams)
    return WordVectors(vocabulary.words, inputs, vocabulary.counts)


def _typed(kind: type, options: dict[str, Any]) -> dict[str, Any]:
    """Return options after a check of their names, with integers as float where a float is expected."""
    types = {field.name: field.type for field in fields(kind)}
    for name in options:
        if name not in types:
            raise TypeError(f"train() has no option {name!r} for this kind; expected one of {', '.join(types)}")
    return {name: float(value) if types[name] == "float" else value for name, value in options.items()}
