"""A cache folder for one corpus, published atomically: readers only see complete corpora, whenever the writer stops.

cache/train/
  .lock               held while a corpus is encoded, so that of two processes only one encodes it
  .making/            staging folder; if a process is killed it stays behind, and the next process removes it
  3f9a…/              the corpus, named after its cache key; renamed from .making
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.data.corpus import Corpus, CorpusError

STAGING, LOCK_FILE = ".making", ".lock"


def load_if_complete(folder: Path, key: str) -> Corpus | None:
    """Return the corpus with this cache key, or None if it is missing or incomplete."""
    try:
        return Corpus(folder / key)
    except CorpusError:
        return None


def load_any(folder: Path) -> Corpus | None:
    """Return any complete corpus in the folder, whatever it was encoded from, or None."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if not path.name.startswith(".") and (corpus := load_if_complete(folder, path.name)) is not None:
            return corpus
    return None


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on the folder. The operating system releases it when the process ends, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("ab") as file:
        try:
            import fcntl
        except ImportError:  # Windows has no flock: two concurrent processes would both encode the corpus
            yield
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def staging_folder(folder: Path) -> Iterator[Path]:
    """Create an empty staging folder. It is removed on an exception; after a kill, the next process removes it."""
    path = folder / STAGING
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def publish(folder: Path, key: str) -> None:
    """Rename the staging folder to its cache key once all bytes are on disk, and remove older corpora."""
    staging, target = folder / STAGING, folder / key
    for path in staging.iterdir():
        _flush(path)
    _flush(staging)
    if target.exists():  # a damaged corpus: a complete one would have been used
        shutil.rmtree(target)
    staging.rename(target)
    _flush(folder)
    for path in folder.iterdir():
        if path.is_dir() and path.name != key:
            shutil.rmtree(path, ignore_errors=True)


def _flush(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:  # Windows cannot open folders
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
