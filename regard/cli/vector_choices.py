"""Choices of `regard vectors`, as the command line needs them: known without importing numpy."""

from __future__ import annotations

from enum import StrEnum


class VectorKind(StrEnum):
    """What `regard vectors train` trains."""

    skipgram = "skipgram"
    cbow = "cbow"
    glove = "glove"


class WordTokens(StrEnum):
    """The values of `regard.vectors.vector_options.Tokens`."""

    whitespace = "whitespace"
    words = "words"


class VectorFormatName(StrEnum):
    """The values of `regard.vectors.vector_files.VectorFormat`."""

    word2vec_text = "word2vec-text"
    word2vec_binary = "word2vec-binary"
    glove = "glove"
    fasttext = "fasttext"
