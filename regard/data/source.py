"""Where examples come from, in a form that can be read again and compared with what was read before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from regard.data.example import TASKS, Example
from regard.data.fields import Label
from regard.data.formats import Format
from regard.data.reader import Files, read
from regard.data.readers.jsonl import Records
from regard.data.readers.plain import expand
from regard.tokenization.text_files import DataError

SAMPLES, SAMPLE = 64, 4096
"""How many places of a file are looked at, and how many bytes at each, to see that it is still the same."""


@dataclass(frozen=True, kw_only=True)
class Stamp:
    """What a file was like when it was read."""

    size: int
    mtime_ns: int
    sample: str
    """A digest of a few places all over the file, which are quickly read."""
    content: str
    """A digest of all of it."""


@dataclass(frozen=True)
class Source:
    """Files, or records, with what is needed to read them: the arguments of `read`."""

    what: type[Example] | str
    files: Files
    form: Format | None = None
    label: Label = Label.NAME

    @property
    def kind(self) -> type[Example]:
        """The kind of example."""
        if isinstance(self.what, str) and self.what not in TASKS:
            raise ValueError(f"there is no task {self.what!r}: the tasks are {', '.join(TASKS)}")
        return TASKS[self.what] if isinstance(self.what, str) else self.what

    def read(self) -> Iterator[Example]:
        """The examples, from the first."""
        if isinstance(self.what, str):
            return read(self.what, self.files, self.form)
        return read(self.what, self.files, self.form, label=self.label)

    def settings(self) -> object:
        """How the files are read, in a form that JSON can hold."""
        form = None if self.form is None else [type(self.form).__name__, repr(self.form)]
        return [self.kind.__name__, str(self.what == "embed"), self.label.value, form]

    def names(self) -> list[str]:
        """The files in the order in which they are read, one twice if it is read twice; or "rows" for records."""
        if self.files and isinstance(self.files[0], str | Path):
            return [str(path.resolve()) for path in expand([Path(file) for file in cast(Sequence[str], self.files)])]
        return ["rows"]

    def stamps(self, known: Mapping[str, Stamp]) -> dict[str, Stamp]:
        """What each file is like now. A file that looks as it did is not read through again."""
        names = self.names()
        if names == ["rows"]:
            return {"rows": _stamp_records(cast(Records, self.files))}
        return {name: stamp(Path(name), known.get(name)) for name in names}


def stamp(path: Path, known: Stamp | None) -> Stamp:
    """What a file is like. Where size, time and samples are those that are known, so is the content."""
    if not path.exists():
        raise DataError(path, None, "there is no such file")
    about = path.stat()
    sample = _sample(path, about.st_size)
    same = known is not None and (known.size, known.mtime_ns, known.sample) == (
        about.st_size,
        about.st_mtime_ns,
        sample,
    )
    if known is not None and same:
        return known
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    return Stamp(size=about.st_size, mtime_ns=about.st_mtime_ns, sample=sample, content=content)


def _sample(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for place in range(SAMPLES):
            file.seek(max(0, size - SAMPLE) * place // (SAMPLES - 1))
            digest.update(file.read(SAMPLE))
    return digest.hexdigest()


def _stamp_records(rows: Records) -> Stamp:
    """Records have no file to look at. A `datasets.Dataset` knows its own fingerprint; others are gone through."""
    content = getattr(rows, "_fingerprint", None)
    if not isinstance(content, str):
        digest = hashlib.sha256()
        for row in rows:
            digest.update(json.dumps(row, sort_keys=True, default=repr).encode() + b"\n")
        content = digest.hexdigest()
    return Stamp(size=len(rows), mtime_ns=0, sample="", content=content)


def stamps_to_json(stamps: Mapping[str, Stamp]) -> dict[str, Any]:
    """Stamps in a form that JSON can hold."""
    return {name: asdict(one) for name, one in stamps.items()}


def stamps_from_json(value: Mapping[str, Any]) -> dict[str, Stamp]:
    """The inverse."""
    return {name: Stamp(**one) for name, one in value.items()}
