"""The examination: reads all files once and runs the checks on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from regard.data.example import EXAMPLE_TYPES, Document, Example, LabeledText, Pair, Question, TaggedSentence
from regard.data.fields import LabelType
from regard.data.formats import Conll, Format, Parallel, Text
from regard.data.reader import detect_format
from regard.doctor import finding_kinds
from regard.doctor.answer_checks import AnswerCheck
from regard.doctor.doctor_report import DoctorReport
from regard.doctor.duplicates import DuplicateCheck
from regard.doctor.finding import FindingCollector
from regard.doctor.foreign_lines import ForeignLineCheck
from regard.doctor.label_checks import LabelCheck, ScoreCheck
from regard.doctor.language_checks import LanguageCheck
from regard.doctor.length_checks import LengthCheck, LengthDistribution
from regard.doctor.line_alignment import check_line_alignment
from regard.doctor.pair_checks import PairCheck
from regard.doctor.script_checks import ScriptCheck
from regard.doctor.split_reader import Split, SplitBatch, SplitReader
from regard.doctor.tag_checks import TagCheck
from regard.doctor.text_checks import EmptyTextFilter, StyleCheck
from regard.doctor.text_file import TextFile
from regard.tokenization.tokenizer import Tokenizer
from regard.training.task import AnyTask, Task

SplitFiles = Mapping[Split, Sequence[Path]]
SplitFormats = Mapping[Split, Format]


@runtime_checkable
class Check(Protocol):
    """A check that receives all rows in batches and adds findings."""

    def update(self, batch: SplitBatch) -> None:
        """Process a batch of rows."""

    def finish(self) -> None:
        """Finish after the last batch."""


def examine(
    task: str | AnyTask,
    files: SplitFiles,
    *,
    file_format: Format | SplitFormats | None = None,
    label_type: LabelType | None = None,
    scripts: Mapping[str, str] | None = None,
    tokenizer: Tokenizer | None = None,
    max_length: int | None = None,
    max_lines: int = 5,
    on_bytes_read: Callable[[int], None] = lambda _: None,
) -> DoctorReport:
    """Examine the files of a task and report all problems by line.

        report = examine("translate", {Split.TRAIN: [Path("train.en"), Path("train.de")]})
        report.ok        # whether training can start
        report.findings  # sorted by severity, highest first

    `scripts` are the expected scripts of the sides ({"source": "Latin"}). `max_length` is the length at which texts
    would be truncated, in tokens with a tokenizer, else in words. `max_lines` limits the line numbers of a finding.
    `on_bytes_read` is called with the number of bytes of each block that was read.
    """
    return _Examination(task, files, file_format, label_type, FindingCollector(max_lines), on_bytes_read).run(
        scripts or {}, tokenizer, max_length
    )


def examine_quick(
    task: str | AnyTask,
    files: SplitFiles,
    *,
    file_format: Format | SplitFormats | None = None,
    label_type: LabelType | None = None,
    max_lines: int = 5,
) -> DoctorReport:
    """Run only the fast checks, as training does: bytes, columns, alignment, empty texts, labels, tags, answers.

    The checks that process every word or compare rows are skipped: scripts, languages, lengths, duplicates and leakage.
    """
    return _Examination(task, files, file_format, label_type, FindingCollector(max_lines), lambda _: None).run_quick()


class _Examination:
    """One pass over the files of a task."""

    def __init__(
        self,
        task: str | AnyTask,
        files: SplitFiles,
        file_format: Format | SplitFormats | None,
        label_type: LabelType | None,
        collector: FindingCollector,
        on_bytes_read: Callable[[int], None],
    ) -> None:
        self.task, self.example_type = _resolve_task(task)
        self.files, self.collector = {split: list(paths) for split, paths in files.items()}, collector
        self.label_type = label_type or (LabelType.SCORE if self.task == "embed" else LabelType.CLASS)
        self.formats = self._find_formats(file_format)
        for split, paths in self.files.items():
            _check_files(split, paths, self.formats[split])
        self.on_bytes_read = on_bytes_read
        self.text_files: dict[str, TextFile] = {}

    def _find_formats(self, file_format: Format | SplitFormats | None) -> SplitFormats:
        """Return the format of each split: as given, or else by the extension of its first file."""
        if isinstance(file_format, Mapping):
            return file_format
        return {split: file_format or detect_format(self.example_type, paths) for split, paths in self.files.items()}

    def _reader(self, split: Split, collector: FindingCollector, on_bytes_read: Callable[[int], None]) -> SplitReader:
        return SplitReader(self.example_type, self.formats[split], self.label_type, collector, on_bytes_read)

    def run(self, scripts: Mapping[str, str], tokenizer: Tokenizer | None, max_length: int | None) -> DoctorReport:
        lengths = LengthCheck(self.collector, tokenizer, max_length)
        checks: list[Check] = [
            *self._quick_checks(),
            StyleCheck(self.collector),
            lengths,
            ScriptCheck(self.collector, scripts),
            DuplicateCheck(self.collector, self.example_type, self._reread),
        ]
        if self.task == "translate":
            languages = LanguageCheck(self.collector)
            checks += [languages, ForeignLineCheck(self.collector, languages.reported)]
        self._read(checks)
        return self._report(checks, list(lengths.distributions.values()), lengths.max_length)

    def run_quick(self) -> DoctorReport:
        checks = self._quick_checks()
        self._read(checks)
        return self._report(checks, [], None)

    def _quick_checks(self) -> list[Check]:
        """The fast checks of the task."""
        if self.example_type is Pair:
            return [PairCheck(self.collector, summaries=self.task == "summarize")]
        if self.example_type is LabeledText:
            return self._label_checks()
        if self.example_type is TaggedSentence:
            schemes = {file_format.scheme for file_format in self.formats.values() if isinstance(file_format, Conll)}
            return [TagCheck(self.collector, schemes.pop() if len(schemes) == 1 else None)]
        return [AnswerCheck(self.collector)] if self.example_type is Question else []

    def _label_checks(self) -> list[Check]:
        match self.label_type:
            case LabelType.CLASS:
                return [LabelCheck(self.collector)]
            case LabelType.SCORE:
                return [ScoreCheck(self.collector)]
            case LabelType.CLASSES:
                return []

    def _read(self, checks: Sequence[Check]) -> None:
        empty_texts = EmptyTextFilter(self.collector, blank_lines_separate=self.example_type is Document)
        for split, paths in self.files.items():
            num_rows = Counter[str]()
            reader = self._reader(split, self.collector, self.on_bytes_read)
            for batch in reader.read(split, paths):
                nonempty = empty_texts.filter(batch)
                for file in {*batch.files.values()}:
                    num_rows[str(file)] += len(nonempty.lines)
                for check in checks if nonempty.lines else ():
                    check.update(nonempty)
            self.text_files |= reader.text_files
            self._check_content(paths, num_rows)
        for split, paths in self.files.items():
            if isinstance(self.formats[split], Parallel):
                self._check_alignment(paths, [check for check in checks if isinstance(check, PairCheck)])
        for check in checks:
            check.finish()

    def _check_content(self, paths: Sequence[Path], num_rows: Mapping[str, int]) -> None:
        """Report files of empty lines, and tables with nothing below the header, unless another finding says why."""
        if self.collector.has_blocking(paths):
            return
        for path in paths:
            file = self.text_files.get(str(path))
            if file is not None and file.complete and file.num_lines and not num_rows.get(str(path)):
                self.collector.add_file(finding_kinds.NO_EXAMPLE, path, finding_kinds.NO_EXAMPLE.message)

    def _check_alignment(self, paths: Sequence[Path], pair_checks: Sequence[PairCheck]) -> None:
        for source, target in zip(paths[::2], paths[1::2], strict=True):
            sides = [self.text_files[str(path)] for path in (source, target)]
            if not all(side.complete and side.num_lines for side in sides):
                continue
            lengths = [side.line_lengths for side in sides]
            if misaligned := check_line_alignment(self.collector, source, target, lengths):
                for check in pair_checks:  # there, implausible length ratios follow from the misalignment
                    check.misaligned[source] = misaligned

    def _reread(self, split: Split) -> Iterator[SplitBatch]:
        """Read the rows of a split again, without adding findings."""
        unused = FindingCollector()
        empty_texts = EmptyTextFilter(unused, blank_lines_separate=self.example_type is Document)
        return map(empty_texts.filter, self._reader(split, unused, lambda _: None).read(split, self.files[split]))

    def _report(
        self, checks: Sequence[Check], lengths: Sequence[LengthDistribution], max_length: int | None
    ) -> DoctorReport:
        candidates = [check.labels if isinstance(check, TagCheck) else check for check in checks]
        labels = next((check.counts() for check in candidates if isinstance(check, LabelCheck)), {})
        line_counts = {name: file.num_lines for name, file in self.text_files.items()}
        return DoctorReport(
            task=self.task,
            files=line_counts,
            findings=tuple(self.collector.findings(line_counts)),
            labels=labels,
            leaked=next((check.leaked for check in checks if isinstance(check, DuplicateCheck)), {}),
            lengths=tuple(lengths),
            max_length=max_length,
        )


def _resolve_task(task: str | AnyTask) -> tuple[str, type[Example]]:
    """Return the name and the example type of a task, given by its name or its declaration."""
    if isinstance(task, Task):
        return task.name, task.example
    if task not in EXAMPLE_TYPES:
        raise ValueError(f"unknown task {task!r}; the tasks are {', '.join(EXAMPLE_TYPES)}")
    return task, EXAMPLE_TYPES[task]


def _check_files(split: Split, paths: Sequence[Path], file_format: Format) -> None:
    """Raise UsageError for missing or unpaired files before anything is read."""
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: file not found")
        if path.is_dir() and not isinstance(file_format, Text):
            raise UsageError(f"{path}: is a folder; expected a file")
    if isinstance(file_format, Parallel) and len(paths) % 2:
        raise UsageError(
            f"{split}: parallel text needs pairs of files (source, target); found {len(paths)}: "
            + ", ".join(map(str, paths))
        )


class UsageError(ValueError):
    """The files do not exist, or do not form pairs."""
