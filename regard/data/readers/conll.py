"""CoNLL columns: one word and its tags per line, sentences separated by empty lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from regard.data.example import Example, TaggedSentence
from regard.data.formats import Conll, Scheme
from regard.data.line_blocks import LineBlock
from regard.data.problem import DataProblem, ProblemKind
from regard.data.record_batch import RecordBatch, make_batch, make_examples
from regard.data.tag_schemes import SchemeDetector, to_bio

DOCSTART = "-DOCSTART-"


def read_conll(parse: Callable[[], Iterator[RecordBatch]], scheme: Scheme | None) -> Iterator[Example]:
    """Yield the sentences of a file with their tags in BIO. It is parsed twice if its scheme has to be detected."""
    scheme = scheme or _detect_scheme(parse())

    def make(batch: RecordBatch) -> Iterator[TaggedSentence]:
        columns = [batch.fields[name] for name in ("words", "tags", "word_lines")] if batch.lines else [(), (), ()]
        for words, tags, lines in zip(*columns, strict=True):
            yield TaggedSentence(
                words=words, tags=to_bio(tags, scheme, batch.file, lines), file=batch.file, line=lines[0]
            )

    return make_examples(parse(), make)


def _detect_scheme(batches: Iterable[RecordBatch]) -> Scheme:
    """Detect the tag scheme of a file. A fatal problem of the file is left to the second pass."""
    detector = SchemeDetector()
    for batch in batches:
        for tags in batch.fields.get("tags", ()):
            detector.update(filter(None, tags))
    return detector.scheme


def parse_conll(file: Path, blocks: Iterable[LineBlock], file_format: Conll) -> Iterator[RecordBatch]:
    """Yield sentences: the words, their tags as written in the file ("" for a missing one), and the line of each."""
    parser: _ConllParser | None = None
    for block in blocks:
        if parser is None:
            tabs, width = _detect_columns(block.texts, file_format)
            if width == 0:
                continue  # no words yet
            parser = _ConllParser(file, file_format, tabs, width)
            line = next(line for line, text in enumerate(block.texts, block.first_line) if parser.is_word(text))
            if problem := parser.check_columns(line, block.texts[line - block.first_line]):
                yield make_batch(file, (), {}, [problem])
                return
        for line, text in enumerate(block.texts, block.first_line):
            parser.add_line(line, text)
        yield parser.take_batch()
    if parser is not None:
        parser.end_sentence()
        yield parser.take_batch()


def _split_columns(text: str, tabs: bool) -> list[str]:
    """Split a line into columns. Only spaces and tabs separate them, because a no-break space is part of a word."""
    if tabs:
        return [cell.strip(" ") for cell in text.split("\t")]
    return [cell for cell in text.replace("\t", " ").split(" ") if cell]


def _detect_columns(texts: Sequence[str], file_format: Conll) -> tuple[bool, int]:
    """Return whether tabs separate the columns, and the most frequent number of columns; 0 if there are no words."""
    rows = [text for text in texts if text.strip(" \t") and not text.startswith(DOCSTART)]
    if file_format.comment is not None:
        # A comment has no tabs: if all lines start like comments, those with a tab are words.
        prefix = file_format.comment
        rows = [text for text in rows if not text.startswith(prefix)] or [text for text in rows if "\t" in text]
    tabs = sum("\t" in text for text in rows) > len(rows) / 2
    widths = Counter(len(_split_columns(text, tabs)) for text in rows)
    return tabs, widths.most_common(1)[0][0] if widths else 0


class _ConllParser:
    """Parses the lines of one file, whose columns are known, and gathers words to sentences."""

    def __init__(self, file: Path, file_format: Conll, tabs: bool, width: int) -> None:
        self.file, self.format, self.tabs, self.width = file, file_format, tabs, width
        self.sentence: list[tuple[int, str, str]] = []
        self.complete: list[list[tuple[int, str, str]]] = []
        self.problems: list[DataProblem] = []

    def is_word(self, text: str) -> bool:
        """Whether a line has as many columns as most."""
        cells = _split_columns(text, self.tabs)
        return len(cells) == self.width and cells[0] != DOCSTART

    def check_columns(self, line: int, text: str) -> DataProblem | None:
        """Return a problem if the file lacks the column of the words or of the tags."""
        for column, role in ((self.format.word, "word"), (self.format.tag, "tag")):
            if not -self.width <= column < self.width:
                message = f"column {column} ({role}) is out of range: the line has {self.width} columns, counted from 0"
                return DataProblem(ProblemKind.MISSING_COLUMN, self.file, line, message, text=text)
        if self.format.word % self.width == self.format.tag % self.width:
            message = f"only one column, {text.strip()[:60]!r}: expected a word and a tag separated by a space or tab"
            return DataProblem(ProblemKind.MISSING_COLUMN, self.file, line, message, text=text)
        return None

    def add_line(self, line: int, text: str) -> None:
        """Parse one line."""
        cells = _split_columns(text, self.tabs)
        if len(cells) == self.width and cells[self.format.tag] and cells[self.format.word] and cells[0] != DOCSTART:
            self.sentence.append((line, cells[self.format.word], cells[self.format.tag]))
        elif not any(cells):
            self.end_sentence()
        elif cells[0] == DOCSTART or self._is_comment(text, len(cells)):
            return
        else:
            self.problems.append(self._problem(line, text, cells))
            self.sentence.append((line, cells[0], ""))

    def _is_comment(self, text: str, num_cells: int) -> bool:
        comment = self.format.comment
        return comment is not None and text.startswith(comment) and num_cells != self.width

    def _problem(self, line: int, text: str, cells: Sequence[str]) -> DataProblem:
        if len(cells) == self.width:
            role = "word" if cells[self.format.tag] else "tag"
            message = f"the {role} is missing in {' | '.join(cells)[:60]!r}"
            return DataProblem(ProblemKind.MISSING_TAG, self.file, line, message, text=text)
        message = f"expected {self.width} columns as in the other lines, found {len(cells)}: {' '.join(cells)[:60]!r}"
        if len(cells) < self.width:
            return DataProblem(ProblemKind.MISSING_TAG, self.file, line, message, text=text)
        described = f"{len(cells)} columns, expected {self.width}: {text}"
        return DataProblem(ProblemKind.RAGGED, self.file, line, message, text=described)

    def end_sentence(self) -> None:
        """End the current sentence."""
        if self.sentence:
            self.complete.append(self.sentence)
        self.sentence = []

    def take_batch(self) -> RecordBatch:
        """Return the complete sentences, and the problems so far."""
        sentences, self.complete = self.complete, []
        problems, self.problems = self.problems, []
        columns = [list(zip(*sentence, strict=True)) for sentence in sentences]
        fields = {
            name: [column[index] for column in columns] for index, name in enumerate(("word_lines", "words", "tags"))
        }
        return make_batch(self.file, [lines[0] for lines in fields["word_lines"]], fields, problems)
