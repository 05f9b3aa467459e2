"""Examples encoded once, on all cores, into a memory-mapped corpus that is used again while nothing changes.

Three things happen at the same time: this thread reads the next examples and writes the last rows, two others encode.
(`tokenizers` spreads each chunk over all cores by itself; there are two chunks, so that cores have work while ids are
turned into arrays.) Only a few chunks exist at any time, so memory stays flat.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np

from regard.data import corpus_cache
from regard.data.corpus import ABOUT, VERSION, Corpus
from regard.data.encoders.encoder_base import ORIGIN, Chunk, Encoder
from regard.data.example import Example, Labelled, Pair, Plain, Question
from regard.data.length_policy import Cuts
from regard.data.ragged import Ragged
from regard.data.source import Source, Stamp, stamps_to_json
from regard.tokenization.io import write_files
from regard.tokenization.text_files import DataError

EXAMPLES, CHARACTERS = 4096, 1_000_000
"""A chunk is full when it has so many of either."""
WORKERS = 2

Progress = Callable[[int], None]
"""Told how many examples are done."""


def encode(source: Source, encoder: Encoder, folder: str | Path, progress: Progress | None = None) -> Corpus:
    """The examples as numbers, from the folder if they are there already, or else made now and left there.

    They are made again when a file, the tokenizer or a setting is another. Each corpus needs a folder of its own. One
    that is being made when the process dies, by whatever, leaves nothing that could be taken for a corpus.
    """
    if source.kind is not encoder.kind:
        raise ValueError(
            f"{type(encoder).__name__} encodes {encoder.kind.__name__}, not {source.kind.__name__} examples"
        )
    folder = Path(folder)
    before = corpus_cache.latest(folder)
    stamps = source.stamps(before.files if before else {})
    key = _key(source, encoder, stamps)
    found = corpus_cache.find(folder, key)
    if found is None:
        with corpus_cache.locked(folder):
            found = corpus_cache.find(folder, key)  # another process may have made it while we waited
            if found is None:
                _make(source, encoder, folder, key, stamps, progress)
                return Corpus(folder / key)
    if found.files != stamps:
        _note(found, stamps)
    return found


def _key(source: Source, encoder: Encoder, stamps: Mapping[str, Stamp]) -> str:
    contents = [stamps[name].content for name in source.names()]
    made_from = [VERSION, source.settings(), encoder.fingerprint(), contents]
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:32]


def _note(corpus: Corpus, stamps: Mapping[str, Stamp]) -> None:
    """Files with a new date and the old content: remember the date, so that they are not read through next time."""
    about = json.loads((corpus.folder / ABOUT).read_text(encoding="utf-8"))
    with suppress(OSError):  # a cache that cannot be written to can still be read
        _write_about(corpus.folder, {**about, "files": stamps_to_json(stamps)})


def _write_about(folder: Path, about: Mapping[str, object]) -> None:
    write_files(folder, {ABOUT: json.dumps(about, indent=1).encode()})


def _make(
    source: Source, encoder: Encoder, folder: Path, key: str, stamps: Mapping[str, Stamp], progress: Progress | None
) -> None:
    with corpus_cache.making(folder) as place:
        with _Writer(place, encoder) as writer:
            for count, chunk in _encoded(_chunks(source.read()), encoder):
                writer.write(count, chunk)
                if progress is not None:
                    progress(writer.examples)
        if not writer.rows:
            raise DataError(next(iter(stamps)), None, "there is no example in it")
        for name, now in source.stamps(stamps).items():
            if now != stamps.get(name):
                raise DataError(name, None, "the file was changed while it was read: encode it again")
        _write_about(place, {**writer.about(), "files": stamps_to_json(stamps)})
        corpus_cache.publish(folder, key)


def _chunks(examples: Iterable[Example]) -> Iterator[list[Example]]:
    chunk: list[Example] = []
    size = 0
    for example in examples:
        chunk.append(example)
        size += _size(example)
        if len(chunk) == EXAMPLES or size >= CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _size(example: Example) -> int:
    match example:
        case Pair():
            return len(example.source) + len(example.target)
        case Plain() | Labelled():
            return len(example.text)
        case Question():
            return len(example.context) + len(example.question)
    return 0


def _encoded(chunks: Iterable[list[Example]], encoder: Encoder) -> Iterator[tuple[int, Chunk]]:
    """Chunks in their order, encoded ahead of the one that is asked for."""
    ahead: deque[tuple[int, Future[Chunk]]] = deque()
    with ThreadPoolExecutor(WORKERS) as pool:
        try:
            for chunk in chunks:
                ahead.append((len(chunk), pool.submit(encoder.encode, chunk)))
                if len(ahead) > WORKERS:
                    count, future = ahead.popleft()
                    yield count, future.result()
            while ahead:
                count, future = ahead.popleft()
                yield count, future.result()
        finally:
            pool.shutdown(cancel_futures=True)


class _Writer:
    """Appends chunks to the files of a corpus."""

    def __init__(self, folder: Path, encoder: Encoder) -> None:
        self.folder, self.columns = folder, dict(encoder.columns)
        self.examples = self.rows = 0
        self.cuts = Cuts()
        self.ends = dict.fromkeys(self.columns, 0)
        self.stack = ExitStack()

    def __enter__(self) -> _Writer:
        open_file = self.stack.enter_context
        self.values = {name: open_file((self.folder / f"{name}.values").open("wb")) for name in self.columns}
        self.offsets = {name: open_file((self.folder / f"{name}.offsets").open("wb")) for name in self.columns}
        for file in self.offsets.values():
            np.zeros(1, np.int64).tofile(file)
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def write(self, examples: int, chunk: Chunk) -> None:
        """One chunk more."""
        columns = dict(chunk.columns)
        if ORIGIN in self.columns:
            origin = np.array(chunk.origin, np.int64) + self.examples
            columns[ORIGIN] = Ragged(origin, np.ones(len(origin), np.int32))
        for name, ragged in columns.items():
            ragged.values.astype(self.columns[name], copy=False).tofile(self.values[name])
            ends = self.ends[name] + np.cumsum(ragged.lengths, dtype=np.int64)
            ends.tofile(self.offsets[name])
            self.ends[name] += int(ragged.lengths.sum())
        self.examples += examples
        self.rows += len(next(iter(columns.values())).lengths)
        self.cuts += chunk.cuts

    def about(self) -> dict[str, object]:
        """What stands in `corpus.json`."""
        columns = {name: dtype.str for name, dtype in self.columns.items()}
        counts = {"examples": self.examples, "rows": self.rows, "cuts": asdict(self.cuts)}
        return {"version": VERSION, "columns": columns, **counts}
