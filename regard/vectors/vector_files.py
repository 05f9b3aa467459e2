"""Files of word vectors: word2vec text and binary, GloVe text, fastText binary; recognized by their content.

| format | layout |
| --- | --- |
| word2vec text | a line `words dim`, then a line `word number number …` for each word |
| word2vec binary | a line `words dim`, then for each word its bytes, a space, dim × float32, usually a line end |
| GloVe text | as word2vec text, without the first line |
| fastText binary | see fasttext_file.py |
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import numpy as np

from regard.files import atomic_write
from regard.progress import Progress
from regard.vectors.fasttext_file import MAGIC, read_fasttext, write_fasttext
from regard.vectors.word2vec_text import format_row, parse_header, read_glove, read_text_rows, without_duplicates
from regard.vectors.word_vectors import WordVectors

BLOCK_BYTES = 1 << 22
MAX_WORD_BYTES = 1 << 16


class VectorFormat(Enum):
    """The layout of a file."""

    WORD2VEC_TEXT = "word2vec-text"
    WORD2VEC_BINARY = "word2vec-binary"
    GLOVE = "glove"
    FASTTEXT = "fasttext"


class VectorFileError(ValueError):
    """A file of word vectors is damaged, or is something else."""


def load(path: Path | str) -> WordVectors:
    """Read a file of word vectors in any of the formats. Memory is needed for the vectors and one block of the file."""
    path = Path(path)
    if not path.is_file():
        raise VectorFileError(f"{path} {'is a folder' if path.is_dir() else 'does not exist'}; expected word vectors")
    kind = detect_format(path)
    with Progress(f"reading {path.name}", total=path.stat().st_size) as progress, _named(path):
        match kind:
            case VectorFormat.FASTTEXT:
                return read_fasttext(path)
            case VectorFormat.WORD2VEC_BINARY:
                return _read_binary(path, progress)
            case VectorFormat.WORD2VEC_TEXT:
                return read_text_rows(path, progress)
            case VectorFormat.GLOVE:
                return read_glove(path, progress)


def detect_format(path: Path) -> VectorFormat:
    """Recognize the format of a file by its first bytes."""
    with path.open("rb") as stream:
        start = stream.read(1 << 16)
    if not start:
        raise VectorFileError(f"{path} is empty; expected word vectors")
    if start[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        raise VectorFileError(
            f"{path} is a pickle, as gensim's save() writes: opening it would execute code from the file. In gensim, "
            'write it with vectors.save_word2vec_format("vectors.bin", binary=True), and open that'
        )
    if start.startswith(b"PK\x03\x04") or start.startswith(b"\x93NUMPY"):
        raise VectorFileError(
            f"{path} is a zip or NumPy file, which has no words; expected word2vec, GloVe or fastText"
        )
    if int.from_bytes(start[:4], "little") == MAGIC:
        return VectorFormat.FASTTEXT
    header = parse_header(start.split(b"\n", 1)[0])
    if header is None:
        return VectorFormat.GLOVE
    rest = start.split(b"\n", 1)[1] if b"\n" in start else b""
    return VectorFormat.WORD2VEC_TEXT if _is_text(rest, header[1]) else VectorFormat.WORD2VEC_BINARY


def _is_text(rest: bytes, dim: int) -> bool:
    """Whether the bytes after the header are text: a row of numbers, or at least nothing that is never in one."""
    fields = rest.partition(b"\n")[0].split()[1:]
    with contextlib.suppress(ValueError):
        if len([float(field) for field in fields]) == dim:
            return True
    numbers = rest.partition(b" ")[2][: 4 * dim]
    return all(9 <= byte <= 13 or 32 <= byte < 127 for byte in numbers)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise error if isinstance(error, VectorFileError) else VectorFileError(f"{path}: {error}") from None


def _read_binary(path: Path, progress: Progress) -> WordVectors:
    size = path.stat().st_size
    with path.open("rb") as stream:
        first = stream.readline(1 << 10)
        header = parse_header(first)
        if header is None:
            raise ValueError(f"line 1: expected `words dim`, found {first[:50]!r}")
        count, dim = header
        if count * (2 + 4 * dim) > size:
            raise ValueError(
                f"line 1 announces {count:,} words of {dim} numbers, at least {count * (2 + 4 * dim):,} bytes; "
                f"the file has {size:,}: it is truncated, or the line is wrong"
            )
        matrix = np.empty((count, dim), np.float32)
        words: list[str] = []
        buffer, position = b"", 0
        for row in range(count):
            space = buffer.find(b" ", position)
            while space < 0 or len(buffer) - space - 1 < 4 * dim:
                block = stream.read(BLOCK_BYTES)
                if not block or (space < 0 and len(buffer) - position > MAX_WORD_BYTES):
                    what = "the file ends here" if not block else f"no space within {MAX_WORD_BYTES} bytes"
                    raise ValueError(
                        f"word {row + 1} of {count:,}, byte {stream.tell():,}: {what}; truncated or damaged"
                    )
                progress.advance(len(block))
                buffer, position = buffer[position:] + block, 0
                space = buffer.find(b" ")
            words.append(_decode(buffer[position:space].lstrip(b"\n"), f"word {row + 1}"))
            matrix[row] = np.frombuffer(buffer, "<f4", dim, space + 1)
            position = space + 1 + 4 * dim
        if buffer[position:].strip() or stream.read(BLOCK_BYTES).strip():
            raise ValueError(f"bytes after the last of {count:,} words: the number of words or of dimensions is wrong")
    bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if bad.size:
        raise ValueError(f"word {bad[0] + 1} ({words[bad[0]]!r}) has a vector with NaN or infinity")
    return without_duplicates(words, matrix, path)


def _decode(word: bytes, place: str) -> str:
    try:
        return word.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{place} is not valid UTF-8: {word[:40]!r}; damaged, or another dimension") from None


def save(vectors: WordVectors, path: Path | str, kind: VectorFormat | None = None) -> None:
    """Write word vectors. By default text, with the first line of word2vec; binary if the name ends in .bin.

    With n-grams, .bin is fastText's format, which keeps them; the other formats have the words alone.
    Text has the shortest decimals that give the same float32 numbers again.
    """
    path = Path(path)
    if kind is None:
        binary = VectorFormat.FASTTEXT if vectors.ngrams else VectorFormat.WORD2VEC_BINARY
        kind = binary if path.suffix == ".bin" else VectorFormat.WORD2VEC_TEXT
    _check_words(vectors, kind)
    with atomic_write(path) as temporary:
        if kind is VectorFormat.FASTTEXT:
            write_fasttext(vectors, temporary)
            return
        with temporary.open("wb") as stream:
            if kind is not VectorFormat.GLOVE:
                stream.write(f"{len(vectors)} {vectors.dim}\n".encode())
            for word, row in zip(vectors.words, vectors.matrix, strict=True):
                if kind is VectorFormat.WORD2VEC_BINARY:
                    stream.write(word.encode() + b" " + row.astype("<f4").tobytes() + b"\n")
                else:
                    stream.write(format_row(word, row).encode())


def _check_words(vectors: WordVectors, kind: VectorFormat) -> None:
    for row, word in enumerate(vectors.words):
        if not word or "\n" in word or (kind is VectorFormat.WORD2VEC_BINARY and " " in word):
            raise ValueError(
                f"word {row + 1} is {word!r}: {kind.value} cannot hold it; "
                + ("write text, or join its parts with _" if "\n" not in word and word else "rename it")
            )
