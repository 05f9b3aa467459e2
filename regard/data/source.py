"""The source of examples: files or records that can be read repeatedly and checked for changes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from regard.data.example import EXAMPLE_TYPES, Example, ImageText
from regard.data.fields import LabelType
from regard.data.formats import Format
from regard.data.image_files import list_images
from regard.data.reader import FilesOrRecords, read
from regard.data.readers.jsonl import Records
from regard.data.readers.plain import expand_folders
from regard.files import open_regular
from regard.tokenization.text_files import DataError

NUM_SAMPLES, SAMPLE_BYTES = 64, 4096
"""Number and size of the samples of a file that are hashed to detect a change without reading all of it."""

STORED_NAMES = {"Document": "Plain", "LabeledText": "Labelled", "TaggedSentence": "Tagged"}
"""Names of example types in cache keys and training states: those of version 0.1. They must not change."""


@dataclass(frozen=True, kw_only=True)
class FileFingerprint:
    """Fingerprint of a file when it was read. The fields are keys in `corpus.json`."""

    size: int
    mtime_ns: int
    sample: str
    """Digest of small samples spread over the file, which is fast to compute."""
    content: str
    """Digest of the complete file."""


@dataclass(frozen=True)
class DataSource:
    """Files or records, with the options to read them: the arguments of `read`."""

    task_or_type: type[Example] | str
    files: FilesOrRecords
    file_format: Format | None = None
    label_type: LabelType = LabelType.CLASS

    @property
    def example_type(self) -> type[Example]:
        """The example type."""
        if isinstance(self.task_or_type, str) and self.task_or_type not in EXAMPLE_TYPES:
            raise ValueError(f"unknown task {self.task_or_type!r}; the tasks are {', '.join(EXAMPLE_TYPES)}")
        return EXAMPLE_TYPES[self.task_or_type] if isinstance(self.task_or_type, str) else self.task_or_type

    def read(self) -> Iterator[Example]:
        """Iterate over the examples, from the first one."""
        if isinstance(self.task_or_type, str):
            return read(self.task_or_type, self.files, self.file_format)
        return read(self.task_or_type, self.files, self.file_format, label_type=self.label_type)

    def reader_fingerprint(self) -> object:
        """Return the options to read the files, as JSON-serializable values. Part of the cache key."""
        file_format = None if self.file_format is None else [type(self.file_format).__name__, repr(self.file_format)]
        name = self.example_type.__name__
        return [STORED_NAMES.get(name, name), str(self.task_or_type == "embed"), self.label_type.value, file_format]

    def file_names(self) -> list[str]:
        """Return the files in reading order (a file that is read twice occurs twice), or ["rows"] for records."""
        if self.example_type is ImageText:
            folders_and_tables = [Path(file) for file in cast(Sequence[str], self.files)]
            found = ([*list_images(path)] if path.is_dir() else [path] for path in folders_and_tables)
            return [str(path.resolve()) for paths in found for path in paths]
        if self.files and isinstance(self.files[0], str | Path):
            return [
                os.path.realpath(path)
                for path in expand_folders([Path(file) for file in cast(Sequence[str], self.files)])
            ]
        return ["rows"]

    def file_fingerprints(self, previous: Mapping[str, FileFingerprint]) -> dict[str, FileFingerprint]:
        """Return the current fingerprint of each file. A file that appears unchanged is not hashed again."""
        names = self.file_names()
        if names == ["rows"]:
            return {"rows": _fingerprint_records(cast(Records, self.files))}
        return {name: fingerprint_file(Path(name), previous.get(name)) for name in names}


def fingerprint_file(path: Path, previous: FileFingerprint | None) -> FileFingerprint:
    """Compute the fingerprint of a file. If size, mtime and samples are unchanged, the previous one is returned."""
    try:
        with open_regular(path) as file:
            stat = os.fstat(file.fileno())
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        raise DataError(path, None, "file not found" if missing else str(error.strerror)) from None
    sample = _sample_digest(path, stat.st_size)
    unchanged = previous is not None and (previous.size, previous.mtime_ns, previous.sample) == (
        stat.st_size,
        stat.st_mtime_ns,
        sample,
    )
    if previous is not None and unchanged:
        return previous
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    return FileFingerprint(size=stat.st_size, mtime_ns=stat.st_mtime_ns, sample=sample, content=content)


def _sample_digest(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for i in range(NUM_SAMPLES):
            file.seek(max(0, size - SAMPLE_BYTES) * i // (NUM_SAMPLES - 1))
            digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def _fingerprint_records(records: Records) -> FileFingerprint:
    """Compute the fingerprint of records. A `datasets.Dataset` has one already; other records are hashed one by one."""
    content = getattr(records, "_fingerprint", None)
    if not isinstance(content, str):
        digest = hashlib.sha256()
        for record in records:
            digest.update(json.dumps(record, sort_keys=True, default=repr).encode() + b"\n")
        content = digest.hexdigest()
    return FileFingerprint(size=len(records), mtime_ns=0, sample="", content=content)


def fingerprints_to_json(fingerprints: Mapping[str, FileFingerprint]) -> dict[str, Any]:
    """Convert fingerprints to JSON-serializable values."""
    return {name: asdict(fingerprint) for name, fingerprint in fingerprints.items()}


def fingerprints_from_json(value: Mapping[str, Any]) -> dict[str, FileFingerprint]:
    """Inverse of `fingerprints_to_json`."""
    return {name: FileFingerprint(**fields) for name, fields in value.items()}
