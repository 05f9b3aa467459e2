"""A folder for one corpus, in which a reader never sees half of one, whenever the writer stops.

cache/train/
  .lock               held while a corpus is made, so that two processes make it once
  .making/            what is being made; left behind by a process that was killed, and cleared by the next
  3f9a…/              the corpus, under a name that says what it was made from: the old name of .making
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.data.corpus import Corpus, CorpusError

MAKING, LOCK = ".making", ".lock"


def find(folder: Path, key: str) -> Corpus | None:
    """The corpus with this name, if it is there and whole."""
    try:
        return Corpus(folder / key)
    except CorpusError:
        return None


def latest(folder: Path) -> Corpus | None:
    """Whichever corpus is there, of the same files or others."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if not path.name.startswith(".") and (found := find(folder, path.name)) is not None:
            return found
    return None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Alone in this folder. The system opens the lock when a process ends, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("ab") as file:
        try:
            import fcntl
        except ImportError:  # no such lock on Windows: two processes at once would both make the corpus
            yield
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def making(folder: Path) -> Iterator[Path]:
    """An empty place to write to. What fails is removed; what was killed, the next one removes."""
    path = folder / MAKING
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def publish(folder: Path, key: str) -> None:
    """What was made takes its name at once, after every byte of it is on disk. Older corpora are removed."""
    made, done = folder / MAKING, folder / key
    for path in made.iterdir():
        _flush(path)
    _flush(made)
    if done.exists():  # it was found broken, or it would have been used
        shutil.rmtree(done)
    made.rename(done)
    _flush(folder)
    for path in folder.iterdir():
        if path.is_dir() and path.name != key:
            shutil.rmtree(path, ignore_errors=True)


def _flush(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:  # Windows opens no folders
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
