"""SQuAD JSON, versions 1.1 and 2.0: articles, their paragraphs, and questions about each paragraph."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from regard.data.line_blocks import LineBlock
from regard.data.problem import DataProblem, ProblemKind
from regard.data.record_batch import RecordBatch, make_batch
from regard.tokenization.text_files import DataError

MAX_DOCUMENT_CHARACTERS = 2**30
"""Size limit of a document, which is held in memory. The largest published set has 50 MB."""


def parse_squad(file: Path, blocks: Iterable[LineBlock]) -> Iterator[RecordBatch]:
    """Yield the questions of a file, in its order. A file is one JSON document, so it is held in memory."""
    text = _read_document(file, blocks)
    parser = _SquadParser(file, text)
    rows: list[tuple[int, Mapping[str, Any]]] = []
    try:
        for row in parser.questions():
            rows.append(row)
    except DataProblem as problem:
        parser.problems.append(problem)
    names = rows[0][1] if rows else {}
    fields = {name: [row[name] for _, row in rows] for name in names}
    yield make_batch(file, [line for line, _ in rows], fields, parser.problems)


def _read_document(file: Path, blocks: Iterable[LineBlock]) -> str:
    parts: list[str] = []
    size = 0
    for block in blocks:
        parts.append("\n".join(block.texts))
        size += len(parts[-1])
        if size > MAX_DOCUMENT_CHARACTERS:
            raise DataError(
                file,
                None,
                f"the document has more than {MAX_DOCUMENT_CHARACTERS:,} characters: split it into several files",
            )
    return "\n".join(parts)


class _SquadParser:
    """The JSON of a file, and the current line for messages. A path such as `data[0]` names a JSON element."""

    def __init__(self, file: Path, text: str) -> None:
        self.file, self.text = file, text
        self.position, self.line = 0, 1
        self.problems: list[DataProblem] = []

    def questions(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield the line and the values of each question. A problem in the structure above it is raised."""
        for article_path, article in self._list(self._parse(), "data", "the file"):
            title = article.get("title")
            for paragraph_path, paragraph in self._list(article, "paragraphs", article_path):
                context = self._text(paragraph, "context", paragraph_path)
                for path, qa in self._list(paragraph, "qas", paragraph_path):
                    self._seek_question(qa.get("id"))
                    try:
                        question = self._question(qa, context, title if isinstance(title, str) else "", path)
                    except DataProblem as problem:
                        self.problems.append(problem)
                    else:
                        yield self.line, question

    def _question(self, qa: Mapping[str, Any], context: str, title: str, path: str) -> Mapping[str, Any]:
        impossible = qa.get("is_impossible")
        return {
            "id": self._text(qa, "id", path),
            "question": self._text(qa, "question", path),
            "context": context,
            "title": title,
            "answers": () if impossible is True and not qa.get("answers") else tuple(self._answers(qa, path)),
            "impossible": impossible,
        }

    def _answers(self, qa: Mapping[str, Any], path: str) -> Iterator[tuple[str, int]]:
        for answer_path, answer in self._list(qa, "answers", path):
            start = answer.get("answer_start")
            if not isinstance(start, int) or isinstance(start, bool) or start < 0:
                expected = 'expected "answer_start" to be a non-negative integer'
                raise self._problem(f"{answer_path}: {expected}, found {start!r}", ProblemKind.WRONG_TYPE)
            yield self._text(answer, "text", answer_path), start

    def _parse(self) -> Mapping[str, Any]:
        try:
            value = json.loads(self.text)
        except json.JSONDecodeError as error:
            message = f"invalid JSON ({error.msg}, character {error.colno} of the line)"
            raise DataProblem(ProblemKind.INVALID_DOCUMENT, self.file, error.lineno, message) from None
        except (RecursionError, ValueError) as error:
            message = f"the JSON cannot be parsed ({type(error).__name__})"
            raise DataProblem(ProblemKind.INVALID_DOCUMENT, self.file, None, message) from None
        if not isinstance(value, dict):
            raise self._problem(f'expected a JSON object with "data", found {type(value).__name__}')
        return value

    def _list(self, parent: Mapping[str, Any], key: str, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the path and the value of each object in the list `parent[key]`."""
        items = parent.get(key)
        if not isinstance(items, list):
            keys = ", ".join(map(str, parent)) or "nothing"
            raise self._problem(f'{path}: expected a list "{key}" (SQuAD format), found {keys}')
        for index, item in enumerate(items):
            item_path = f"{key}[{index}]" if path == "the file" else f"{path}.{key}[{index}]"
            if not isinstance(item, dict):
                raise self._problem(f"{item_path}: expected an object, found {type(item).__name__}")
            yield item_path, item

    def _text(self, parent: Mapping[str, Any], key: str, path: str) -> str:
        value = parent.get(key)
        if not isinstance(value, str):
            raise self._problem(f'{path}: expected a string "{key}", found {value!r}', ProblemKind.WRONG_TYPE)
        return value

    def _seek_question(self, question_id: object) -> None:
        """Advance to the line that contains the id of this question."""
        if not isinstance(question_id, str):
            return
        forms = "|".join(re.escape(json.dumps(question_id, ensure_ascii=ascii_only)) for ascii_only in (True, False))
        match = re.compile(rf'"id"\s*:\s*(?:{forms})').search(self.text, self.position)
        if match:
            self.line += self.text.count("\n", self.position, match.start())
            self.position = match.end()

    def _problem(self, message: str, kind: ProblemKind = ProblemKind.NOT_SQUAD) -> DataProblem:
        return DataProblem(kind, self.file, self.line, message, text=message)
