"""fastText's binary files (.bin, version 12): words with counts, their vectors and those of character n-grams.

int32 magic, version
int32 dim, window, epochs, min_count, negative, word n-grams, loss, model, buckets, shortest, longest, lr update rate
double sample
int32 entries, words, labels; int64 tokens, pruned entries (-1: none)
each entry: the word's bytes, 0, int64 count, int8 type (0: a word)
bool quantized; int64 rows, columns; float32 input matrix (words, then buckets)
bool quantized; int64 rows, columns; float32 output matrix
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from regard.vectors.char_ngrams import NgramVectors, mean_vectors, word_rows
from regard.vectors.vector_options import CharacterNgrams
from regard.vectors.word_vectors import WordVectors

MAGIC = 793712314
VERSION = 12
ARGUMENTS = struct.Struct("<12id")
SIZES = struct.Struct("<3i2q")
HIERARCHICAL_SOFTMAX, NEGATIVE_SAMPLING = 1, 2
SKIPGRAM = 2
MAX_WORD_BYTES = 1 << 16


def read_fasttext(path: Path) -> WordVectors:
    """Read a model with its n-grams; the output matrix is not needed."""
    with path.open("rb") as stream:
        _, version = struct.unpack("<2i", _read(stream, 8, "the header"))
        if version != VERSION:
            raise ValueError(f"version {version} of fastText's format; expected {VERSION}")
        dim, *_, buckets, shortest, longest, _, _ = ARGUMENTS.unpack(_read(stream, ARGUMENTS.size, "the settings"))
        entries, num_words, labels, _, pruned = SIZES.unpack(_read(stream, SIZES.size, "the numbers of words"))
        if labels or pruned >= 0:
            raise ValueError("a classifier or a pruned model; expected a skip-gram or CBOW model")
        if min(dim, entries, num_words) <= 0 or buckets < 0 or entries != num_words or 9 * entries > _size(path):
            raise ValueError(f"{num_words} words, {entries} entries, {dim} numbers, {buckets} buckets: damaged")
        words, counts = _read_words(stream, entries)
        if _read(stream, 1, "the matrix") != b"\0":
            raise ValueError("a quantized model; expected float32 vectors")
        rows, columns = struct.unpack("<2q", _read(stream, 16, "the size of the matrix"))
        if columns != dim or rows != num_words + buckets:
            raise ValueError(f"a matrix of {rows} × {columns}; expected {num_words + buckets} × {dim}")
        if 4 * rows * columns > _size(path) - stream.tell():
            raise ValueError(
                f"a matrix of {rows} × {columns} in the {_size(path) - stream.tell()} bytes left: truncated"
            )
        matrix = np.fromfile(stream, "<f4", rows * columns).reshape(rows, columns)
    if not np.isfinite(matrix).all():
        bad = int(np.flatnonzero(~np.isfinite(matrix).all(axis=1))[0])
        raise ValueError(f"row {bad} of the matrix contains NaN or infinity")
    if not buckets or longest == 0:
        return WordVectors(words, matrix[:num_words], counts, source=str(path))
    return from_input_rows(words, counts, matrix, CharacterNgrams(shortest=shortest, longest=longest, buckets=buckets))


def from_input_rows(
    words: list[str], counts: NDArray[np.int64], inputs: NDArray[np.float32], options: CharacterNgrams
) -> WordVectors:
    """Return the vectors of words whose input rows, and those of n-grams, are known."""
    starts, rows = word_rows(words, options)
    ngrams = NgramVectors(options, inputs[: len(words)], inputs[len(words) :])
    return WordVectors(words, mean_vectors(starts, rows, inputs), counts, ngrams)


def write_fasttext(vectors: WordVectors, path: Path) -> None:
    """Write a model that fastText and gensim open; its output matrix is zero, so it cannot be trained further."""
    if vectors.ngrams is None:
        raise ValueError("the vectors have no character n-grams; write word2vec's or GloVe's format")
    options, count = vectors.ngrams.options, len(vectors)
    counts = np.ones(count, np.int64) if vectors.counts is None else vectors.counts
    with path.open("wb") as stream:
        stream.write(struct.pack("<2i", MAGIC, VERSION))
        settings = (vectors.dim, 5, 1, 1, 5, 1, NEGATIVE_SAMPLING, SKIPGRAM, options.buckets)
        stream.write(ARGUMENTS.pack(*settings, options.shortest, options.longest, 100, 1e-4))
        stream.write(SIZES.pack(count, count, 0, int(counts.sum()), -1))
        for word, number in zip(vectors.words, counts, strict=True):
            stream.write(word.encode() + b"\0" + struct.pack("<qb", int(number), 0))
        stream.write(b"\0" + struct.pack("<2q", count + options.buckets, vectors.dim))
        _write_matrix(stream, vectors.ngrams.words)
        _write_matrix(stream, vectors.ngrams.buckets)
        stream.write(b"\0" + struct.pack("<2q", count, vectors.dim))
        _write_matrix(stream, np.broadcast_to(np.float32(0), (count, vectors.dim)))


def _write_matrix(stream: IO[bytes], matrix: NDArray[np.float32]) -> None:
    for start in range(0, len(matrix), 1 << 14):
        stream.write(matrix[start : start + (1 << 14)].astype("<f4").tobytes())


def _read_words(stream: IO[bytes], entries: int) -> tuple[list[str], NDArray[np.int64]]:
    words, counts = [], np.empty(entries, np.int64)
    for row in range(entries):
        word = bytearray()
        while (byte := _read(stream, 1, f"word {row + 1} of {entries}")) != b"\0":
            word += byte
            if len(word) > MAX_WORD_BYTES:
                raise ValueError(f"word {row + 1} of {entries} has more than {MAX_WORD_BYTES} bytes: damaged")
        counts[row], kind = struct.unpack("<qb", _read(stream, 9, f"the count of word {row + 1}"))
        if kind:
            raise ValueError(f"word {row + 1} of {entries} has type {kind}; expected a word (0)")
        try:
            words.append(word.decode("utf-8"))
        except UnicodeDecodeError:
            raise ValueError(f"word {row + 1} of {entries} is not valid UTF-8") from None
    return words, counts


def _read(stream: IO[bytes], size: int, what: str) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise ValueError(f"the file ends within {what}: it is truncated")
    return data


def _size(path: Path) -> int:
    return path.stat().st_size
