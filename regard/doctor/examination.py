"""The doctor: reads everything once, and says what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from regard.data.example import TASKS, Labelled, Pair, Plain, Question, Tagged
from regard.data.formats import Format, Parallel, Text
from regard.data.reader import format_of
from regard.doctor.answer_checks import Answers
from regard.doctor.doctor_report import Report
from regard.doctor.duplicates import Repeats
from regard.doctor.finding import Ledger
from regard.doctor.finding_kinds import RATIO
from regard.doctor.label_checks import Labels, Scores
from regard.doctor.language_checks import Languages
from regard.doctor.length_checks import Lengths, Spread
from regard.doctor.line_alignment import report_parting
from regard.doctor.pair_checks import Pairs
from regard.doctor.script_checks import Scripts
from regard.doctor.tag_checks import Tags
from regard.doctor.text_checks import Emptiness, Manner
from regard.doctor.tolerant_reader import Reading, Rows, Split
from regard.tokenization.tokenizer import Tokenizer

Files = Mapping[Split, Sequence[Path]]


@runtime_checkable
class Check(Protocol):
    """Sees all rows go by, and says in the end what it has found."""

    def see(self, rows: Rows) -> None:
        """Some rows more."""

    def finish(self) -> None:
        """All rows were seen."""


def examine(
    task: str,
    files: Files,
    *,
    form: Format | None = None,
    scripts: Mapping[str, str] | None = None,
    tokenizer: Tokenizer | None = None,
    length: int | None = None,
    shown: int = 5,
    tell: Callable[[int], None] = lambda _: None,
) -> Report:
    """Everything that is wrong with a task's files, by line.

        report = examine("translate", {Split.TRAIN: [Path("train.en"), Path("train.de")]})
        report.go_ahead  # whether training should go ahead
        report.findings  # what was found, the worst first

    `scripts` are the scripts that the sides should be in ({"source": "Latin"}), `length` is where texts would be cut
    (in tokens if there is a tokenizer, in words if not), `shown` how many line numbers a finding keeps, and `tell` is
    told how many bytes were read.
    """
    return _Examination(task, files, form, Ledger(shown), tell).run(scripts or {}, tokenizer, length)


def quick(task: str, files: Files, *, form: Format | None = None, shown: int = 5) -> Report:
    """The cheap part, for whoever is about to train: bytes, columns, alignment, emptiness, labels, tags, answers.

    Left out is what looks at every word or compares rows: scripts, languages, lengths, repeats and leakage.
    """
    return _Examination(task, files, form, Ledger(shown), lambda _: None).run_quick()


class _Examination:
    """One run over the files of a task."""

    def __init__(
        self, task: str, files: Files, form: Format | None, ledger: Ledger, tell: Callable[[int], None]
    ) -> None:
        if task not in TASKS:
            raise ValueError(f"there is no task {task!r}: the tasks are {', '.join(TASKS)}")
        self.task, self.files, self.ledger = task, {split: list(paths) for split, paths in files.items()}, ledger
        self.kind = TASKS[task]
        self.form = form or format_of(self.kind, next(iter(self.files.values())))
        _check_files(self.files, self.form)
        self.reading = Reading(self.kind, self.form, ledger, tell)

    def run(self, scripts: Mapping[str, str], tokenizer: Tokenizer | None, length: int | None) -> Report:
        lengths = Lengths(self.ledger, tokenizer, length)
        repeats = Repeats(self.ledger, self.kind, self._again)
        checks: list[Check] = [*self._cheap(), Manner(self.ledger), lengths, Scripts(self.ledger, scripts), repeats]
        if self.task == "translate":
            checks.append(Languages(self.ledger))
        self._read(checks)
        return self._report(checks, list(lengths.spreads.values()), lengths.length)

    def run_quick(self) -> Report:
        checks = self._cheap()
        self._read(checks)
        return self._report(checks, [], None)

    def _cheap(self) -> list[Check]:
        """The checks that cost little, by what a task's examples are made of."""
        kind = self.kind
        if kind is Pair:
            return [Pairs(self.ledger, summaries=self.task == "summarize")]
        if kind is Labelled:
            return [Scores(self.ledger) if self.task == "embed" else Labels(self.ledger)]
        if kind is Tagged:
            return [Tags(self.ledger)]
        return [Answers(self.ledger)] if kind is Question else []

    def _read(self, checks: Sequence[Check]) -> None:
        emptiness = Emptiness(self.ledger, blank_lines_part=self.kind is Plain)
        for split, paths in self.files.items():
            for rows in self.reading.rows(split, paths):
                full = emptiness.keep(rows)
                for check in checks if full.lines else ():
                    check.see(full)
        for check in checks:
            check.finish()
        for paths in self.files.values() if isinstance(self.form, Parallel) else ():
            self._align(paths)

    def _align(self, paths: Sequence[Path]) -> None:
        for source, target in zip(paths[::2], paths[1::2], strict=True):
            sides = [self.reading.opened[str(path)] for path in (source, target)]
            if not all(side.whole and side.lines for side in sides):
                continue
            lengths = [side.lengths for side in sides]
            if report_parting(self.ledger, source, target, lengths):
                self.ledger.forget(RATIO, source)  # lines that do not belong together do not fit

    def _again(self, split: Split) -> Iterator[Rows]:
        """A set's rows a second time, with nothing noted."""
        silent = Ledger()
        emptiness = Emptiness(silent, blank_lines_part=self.kind is Plain)
        reading = Reading(self.kind, self.form, silent, lambda _: None)
        return map(emptiness.keep, reading.rows(split, self.files[split]))

    def _report(self, checks: Sequence[Check], spreads: Sequence[Spread], length: int | None) -> Report:
        labels = [check.labels if isinstance(check, Tags) else check for check in checks]
        counts = next((one.counts() for one in labels if isinstance(one, Labels)), {})
        lines = {name: file.lines for name, file in self.reading.opened.items()}
        return Report(
            task=self.task,
            files=lines,
            findings=tuple(self.ledger.findings(lines)),
            labels=counts,
            lengths=tuple(spreads),
            length=length,
        )


def _check_files(files: Files, form: Format) -> None:
    """Stop where the call is wrong, before anything is read."""
    for split, paths in files.items():
        for path in paths:
            if not path.exists():
                raise CallError(f"{path}: there is no such file")
            if path.is_dir() and not isinstance(form, Text):
                raise CallError(f"{path}: this is a folder; expected a file")
        if isinstance(form, Parallel) and len(paths) % 2:
            raise CallError(
                f"{split}: parallel text is two files, source and target (or several times two); found {len(paths)}: "
                + ", ".join(map(str, paths))
            )


class CallError(ValueError):
    """The doctor was called with files that are not there or do not go together."""
