"""Encode examples once, on all cores, into a memory-mapped corpus that is reused as long as nothing changes.

The calling thread reads examples and writes encoded rows, while two worker threads encode. (`tokenizers` parallelizes
each batch of examples over all cores by itself; with two batches in flight, the cores also have work while ids are
converted to arrays.) Only a few batches of examples exist at any time, so memory use is constant.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np

from regard.checksums import with_checksums, with_own_checksum
from regard.data import corpus_cache
from regard.data.corpus import FORMAT_VERSION, METADATA_FILE, Corpus
from regard.data.encoders.encoder_base import EXAMPLE_COLUMN, EncodedExamples, Encoder
from regard.data.example import Document, Example, LabeledText, Pair, Question
from regard.data.length_policy import TruncationStats
from regard.data.ragged import RaggedArray
from regard.data.source import DataSource, FileFingerprint, fingerprints_to_json
from regard.files import read_json, write_json
from regard.tokenization.text_files import DataError

ENCODE_BATCH_EXAMPLES, ENCODE_BATCH_CHARACTERS = 4096, 1_000_000
"""Limits of one batch of examples passed to an encoder: it is complete when either is reached."""
ENCODE_THREADS = 2


def encode(source: DataSource, encoder: Encoder, folder: str | Path) -> Corpus:
    """Encode the examples of a source and return the corpus. An up-to-date corpus in the folder is reused.

    The examples are encoded again if a file, the tokenizer or an option has changed. Each corpus needs a folder of its
    own. If the process dies while encoding, for whatever reason, no incomplete corpus is left behind.
    """
    if source.example_type is not encoder.example_type:
        expected, actual = encoder.example_type.__name__, source.example_type.__name__
        raise ValueError(f"{type(encoder).__name__} expects {expected} examples, got {actual}")
    folder = Path(folder)
    previous = corpus_cache.load_any(folder)
    fingerprints = source.file_fingerprints(previous.file_fingerprints if previous else {})
    key = _cache_key(source, encoder, fingerprints)
    corpus = corpus_cache.load_if_intact(folder, key)
    if corpus is None:
        with corpus_cache.folder_lock(folder):
            corpus = corpus_cache.load_if_intact(folder, key)  # another process may have encoded it meanwhile
            if corpus is None:
                _encode_to_folder(source, encoder, folder, key, fingerprints)
                return Corpus(folder / key)
    if corpus.file_fingerprints != fingerprints:
        _update_file_fingerprints(corpus, fingerprints)
    return corpus


def _cache_key(source: DataSource, encoder: Encoder, fingerprints: Mapping[str, FileFingerprint]) -> str:
    """Hash everything the corpus depends on. The hashed text must not change, or cached corpora are not found."""
    contents = [fingerprints[name].content for name in source.file_names()]
    inputs = [FORMAT_VERSION, source.reader_fingerprint(), encoder.fingerprint(), contents]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:32]


def _update_file_fingerprints(corpus: Corpus, fingerprints: Mapping[str, FileFingerprint]) -> None:
    """Store the new mtime of files whose content is unchanged, so that they are not hashed again next time."""
    metadata = read_json(corpus.folder / METADATA_FILE)
    with suppress(OSError):  # a read-only cache can still be used
        updated = {**metadata, "files": fingerprints_to_json(fingerprints)}
        write_json(corpus.folder / METADATA_FILE, with_own_checksum(updated))


def _encode_to_folder(
    source: DataSource, encoder: Encoder, folder: Path, key: str, fingerprints: Mapping[str, FileFingerprint]
) -> None:
    with corpus_cache.publish(folder, key) as staging:
        with _CorpusWriter(staging, encoder) as writer:
            for count, encoded in _encode_in_order(_group_examples(source.read()), encoder):
                writer.write(count, encoded)
        if not writer.num_rows:
            raise DataError(next(iter(fingerprints)), None, "the file contains no examples")
        for name, current in source.file_fingerprints(fingerprints).items():
            if current != fingerprints.get(name):
                raise DataError(name, None, "the file changed during encoding: encode it again")
        metadata = {**writer.metadata(), "files": fingerprints_to_json(fingerprints)}
        write_json(staging / METADATA_FILE, with_checksums(metadata, sorted(staging.iterdir())))


def _group_examples(examples: Iterable[Example]) -> Iterator[list[Example]]:
    group: list[Example] = []
    size = 0
    for example in examples:
        group.append(example)
        size += _num_characters(example)
        if len(group) == ENCODE_BATCH_EXAMPLES or size >= ENCODE_BATCH_CHARACTERS:
            yield group
            group, size = [], 0
    if group:
        yield group


def _num_characters(example: Example) -> int:
    match example:
        case Pair():
            return len(example.source) + len(example.target)
        case Document() | LabeledText():
            return len(example.text)
        case Question():
            return len(example.context) + len(example.question)
    return 0


def _encode_in_order(groups: Iterable[list[Example]], encoder: Encoder) -> Iterator[tuple[int, EncodedExamples]]:
    """Yield the size and the encoded form of each group, in order, while worker threads encode the next groups."""
    pending: deque[tuple[int, Future[EncodedExamples]]] = deque()
    with ThreadPoolExecutor(ENCODE_THREADS) as pool:
        try:
            for group in groups:
                pending.append((len(group), pool.submit(encoder.encode, group)))
                if len(pending) > ENCODE_THREADS:
                    count, future = pending.popleft()
                    yield count, future.result()
            while pending:
                count, future = pending.popleft()
                yield count, future.result()
        finally:
            pool.shutdown(cancel_futures=True)


class _CorpusWriter:
    """Append encoded examples to the files of a corpus."""

    def __init__(self, folder: Path, encoder: Encoder) -> None:
        self.folder, self.columns = folder, dict(encoder.columns)
        self.num_examples = self.num_rows = 0
        self.truncation = TruncationStats()
        self.last_offsets = dict.fromkeys(self.columns, 0)
        self.stack = ExitStack()

    def __enter__(self) -> _CorpusWriter:
        open_file = self.stack.enter_context
        self.values = {name: open_file((self.folder / f"{name}.values").open("wb")) for name in self.columns}
        self.offsets = {name: open_file((self.folder / f"{name}.offsets").open("wb")) for name in self.columns}
        for file in self.offsets.values():
            np.zeros(1, np.int64).tofile(file)
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def write(self, num_examples: int, encoded: EncodedExamples) -> None:
        """Append the rows of these examples."""
        columns = dict(encoded.columns)
        if EXAMPLE_COLUMN in self.columns:
            indices = np.array(encoded.example_indices, np.int64) + self.num_examples
            columns[EXAMPLE_COLUMN] = RaggedArray(indices, np.ones(len(indices), np.int32))
        for name, ragged in columns.items():
            ragged.values.astype(self.columns[name], copy=False).tofile(self.values[name])
            ends = self.last_offsets[name] + np.cumsum(ragged.lengths, dtype=np.int64)
            ends.tofile(self.offsets[name])
            self.last_offsets[name] += int(ragged.lengths.sum())
        self.num_examples += num_examples
        self.num_rows += len(next(iter(columns.values())).lengths)
        self.truncation += encoded.truncation

    def metadata(self) -> dict[str, object]:
        """Return the content of `corpus.json`. The keys are read by `Corpus`."""
        columns = {name: dtype.str for name, dtype in self.columns.items()}
        counts = {"examples": self.num_examples, "rows": self.num_rows, "cuts": asdict(self.truncation)}
        return {"version": FORMAT_VERSION, "columns": columns, **counts}
