"""A cache folder for one corpus, published atomically: readers only see complete corpora, whenever the writer stops.

cache/train/
  .lock               held while a corpus is encoded, so that of two processes only one encodes it
  3f9a…/              the corpus, named after its cache key
  .3f9a….….part/      a corpus that is being encoded; a killed process leaves it, and the next one removes it
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.data.corpus import Corpus, CorpusError, check_corpus
from regard.files import TEMPORARY_NAME, atomic_folder
from regard.progress import write_note

LOCK_FILE = ".lock"
OWN_NAME = re.compile(rf"[0-9a-f]{{32}}|{TEMPORARY_NAME.format(name='[0-9a-f]{32}')}")
"""The folders that may be removed: other corpora, and those that a killed process left."""


def load_if_complete(folder: Path, key: str) -> Corpus | None:
    """Return the corpus with this cache key, or None if it is missing or incomplete."""
    try:
        return Corpus(folder / key)
    except CorpusError:
        return None


def load_if_intact(folder: Path, key: str) -> Corpus | None:
    """The same, with the checksums of all its files checked. Damage is reported: the corpus is encoded again."""
    corpus = load_if_complete(folder, key)
    try:
        if corpus is not None:
            check_corpus(corpus.folder)
    except CorpusError as error:
        write_note(f"note: {error}; the data is encoded again")
        return None
    return corpus


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
def publish(folder: Path, key: str) -> Iterator[Path]:
    """Yield an empty folder to encode to; on success, give it its cache key as name, and remove older corpora."""
    with atomic_folder(folder / key) as staging:
        yield staging
    for path in folder.iterdir():
        if path.is_dir() and path.name != key and OWN_NAME.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
