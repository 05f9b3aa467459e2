"""What the parsers of all formats yield: rows by column, and the problems between them.

Training turns the rows into examples and raises the first problem (`make_examples`); the doctor checks the columns and
collects the problems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.data.example import Answer, Document, Example, LabeledText, Pair, Question, TaggedSentence
from regard.data.problem import DataProblem
from regard.data.tag_schemes import bio_of_sentence


@dataclass(frozen=True)
class RecordBatch:
    """Some rows of a file, as columns: the fields of the examples, by name.

    Further columns: `word_lines` (the line of each word), `impossible` (whether a question has no answer), and
    `starts_document` and `ends_document`. An answer is its text and its start.
    """

    lines: Sequence[int]
    """The line on which each row starts."""
    fields: Mapping[str, Sequence[Any]]
    files: Mapping[str, Path]
    """The file of each field: two files for parallel text, else one."""
    problems: Sequence[DataProblem] = field(default=())
    """Problems in the lines of the batch, in their order. The rows that have one are not in the columns."""

    @property
    def file(self) -> Path:
        """The file that is named in messages about whole rows."""
        return next(iter(self.files.values()))


def make_batch(
    file: Path, lines: Sequence[int], fields: Mapping[str, Sequence[Any]], problems: Sequence[DataProblem] = ()
) -> RecordBatch:
    """Return a batch of rows of one file."""
    return RecordBatch(lines, fields, dict.fromkeys(fields, file), problems)


Maker = Callable[[RecordBatch], Iterator[Example]]
"""Turns the rows of a batch into examples."""


def make_examples(batches: Iterable[RecordBatch], make: Maker) -> Iterator[Example]:
    """Yield the rows of batches as examples. The first fatal problem is raised, after the rows before it."""
    for batch in batches:
        problem = next((problem for problem in batch.problems if problem.fatal), None)
        if problem is None:
            yield from make(batch)
            continue
        yield from make(_rows_before(batch, problem.line or 0))
        raise problem


def _rows_before(batch: RecordBatch, line: int) -> RecordBatch:
    """Return the rows that end before a line."""
    last_lines = [lines[-1] for lines in batch.fields["word_lines"]] if "word_lines" in batch.fields else batch.lines
    count = sum(last < line for last in last_lines)
    fields = {name: column[:count] for name, column in batch.fields.items()}
    return RecordBatch(batch.lines[:count], fields, batch.files)


def _pairs(batch: RecordBatch) -> Iterator[Example]:
    if not batch.lines:
        return
    file, rows = batch.file, zip(batch.fields["source"], batch.fields["target"], batch.lines, strict=True)
    references = batch.fields.get("references")
    if references is None:
        for source, target, line in rows:
            yield Pair(source=source, target=target, file=file, line=line)
        return
    for (source, target, line), further in zip(rows, references, strict=True):
        yield Pair(source=source, target=target, references=further, file=file, line=line)


def _documents(batch: RecordBatch) -> Iterator[Example]:
    if not batch.lines:
        return
    file, every = batch.file, [True] * len(batch.lines)
    starts, ends = batch.fields.get("starts_document", every), batch.fields.get("ends_document", every)
    for text, line, starts_document, ends_document in zip(batch.fields["text"], batch.lines, starts, ends, strict=True):
        yield Document(text=text, file=file, line=line, starts_document=starts_document, ends_document=ends_document)


def _labeled_texts(batch: RecordBatch) -> Iterator[Example]:
    if not batch.lines:
        return
    file, fields = batch.file, batch.fields
    pairs = fields.get("pair", [None] * len(batch.lines))
    for text, pair, label, line in zip(fields["text"], pairs, fields["label"], batch.lines, strict=True):
        yield LabeledText(text=text, pair=pair, label=label, file=file, line=line)


def _tagged_sentences(batch: RecordBatch) -> Iterator[Example]:
    if not batch.lines:
        return
    file, fields = batch.file, batch.fields
    for words, tags, line in zip(fields["words"], fields["tags"], batch.lines, strict=True):
        yield TaggedSentence(words=words, tags=bio_of_sentence(tags, file, line), file=file, line=line)


def _questions(batch: RecordBatch) -> Iterator[Example]:
    for row, line in enumerate(batch.lines):
        values = {name: column[row] for name, column in batch.fields.items()}
        answers = () if values.get("impossible") is True else values["answers"]
        yield Question(
            id=values.get("id") or str(line),
            question=values["question"],
            context=values["context"],
            title=values.get("title") or "",
            answers=tuple(Answer(text=text, start=start) for text, start in answers),
            file=batch.file,
            line=line,
        )


MAKERS: Mapping[type[Example], Maker] = {
    Pair: _pairs,
    Document: _documents,
    LabeledText: _labeled_texts,
    TaggedSentence: _tagged_sentences,
    Question: _questions,
}
"""For each example type: how rows become examples."""
