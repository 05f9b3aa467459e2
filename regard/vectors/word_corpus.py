"""A text as word indices in a file, read once and mapped into memory: texts larger than memory can be trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.progress import Progress
from regard.vectors.phrases import count_pairs, find_phrases, join_phrases
from regard.vectors.vector_options import TextOptions
from regard.vectors.word_text import Advance, map_indices, read_words, total_bytes
from regard.vectors.word_vocabulary import WordVocabulary, count_words, make_vocabulary

LINE_END, UNKNOWN = -1, -2


@dataclass(frozen=True)
class WordCorpus:
    """A vocabulary and a text."""

    vocabulary: WordVocabulary
    tokens: NDArray[np.int32]
    """Word indices, and `LINE_END` after each line. Words without a vector are left out."""


def encode(
    files: Sequence[Path], options: TextOptions, folder: Path, note: Callable[[str], None] = lambda _: None
) -> WordCorpus:
    """Count the words of text files, and write their indices to a file in `folder`."""
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file} {'is a folder' if file.is_dir() else 'does not exist'}; expected a text file")
    size = total_bytes(files)
    with Progress("counting words", total=size) as progress:
        vocabulary = make_vocabulary(count_words(read_words(files, options, progress.advance)), options)
    _warn_about_punctuation(vocabulary, note)
    with Progress("reading the text", total=size) as progress:
        tokens = _write_indices(files, options, vocabulary, folder / "tokens.bin", progress.advance)
    for number in range(options.phrases):
        pairs = count_pairs(tokens, len(vocabulary))
        phrases = find_phrases(pairs, vocabulary, options)
        vocabulary, tokens = join_phrases(vocabulary, tokens, phrases, options, folder / f"phrases{number}.bin")
        note(f"phrases: {len(phrases.first):,} pairs of words are joined")
        with suppress(OSError):
            (folder / (f"phrases{number - 1}.bin" if number else "tokens.bin")).unlink()
    return WordCorpus(vocabulary, _without_unknown(tokens, folder / "corpus.bin") if options.phrases else tokens)


def _write_indices(
    files: Sequence[Path], options: TextOptions, vocabulary: WordVocabulary, target: Path, advance: Advance
) -> NDArray[np.int32]:
    lookup = vocabulary.index.get
    with target.open("wb") as stream:
        for block in read_words(files, options, advance):
            indices: list[int] = []
            for line in block:
                indices += map(lookup, line, repeat(UNKNOWN))
                indices.append(LINE_END)
            indices.pop()  # the last line of a block continues in the next one
            array = np.array(indices, np.int32)
            # Phrases must not join words that have an unknown one between them.
            (array if options.phrases else array[array != UNKNOWN]).tofile(stream)
    return map_indices(target)


def _without_unknown(tokens: NDArray[np.int32], target: Path) -> NDArray[np.int32]:
    with target.open("wb") as stream:
        for part in parts(tokens):
            part[part != UNKNOWN].tofile(stream)
    return map_indices(target)


def parts(tokens: NDArray[np.int32], size: int = 1 << 20) -> Iterable[NDArray[np.int32]]:
    """Yield consecutive parts of a text."""
    for start in range(0, len(tokens), size):
        yield np.asarray(tokens[start : start + size])


def _warn_about_punctuation(vocabulary: WordVocabulary, note: Callable[[str], None]) -> None:
    share = sum(
        int(count)
        for word, count in zip(vocabulary.words, vocabulary.counts, strict=True)
        if len(word) > 1 and word[-1] in ".,;:!?" and word[0].isalnum()
    )
    if share > 0.02 * vocabulary.total:
        note(
            f"{share / vocabulary.total:.0%} of the words end in punctuation, such as "
            f"{next(word for word in vocabulary.words if len(word) > 1 and word[-1] in '.,;:!?')!r}: "
            f'tokens = "words" (--tokens words) separates it'
        )
