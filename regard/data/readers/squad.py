"""SQuAD JSON, versions 1.1 and 2.0: articles, their paragraphs, and questions about each paragraph."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.data.example import Answer, Question
from regard.tokenization.text_files import DataError, decode_line, open_decompressed


def read_squad(files: Sequence[Path]) -> Iterator[Question]:
    """Read questions in file order. Each file is one JSON document, so it is held in memory."""
    for file in files:
        with open_decompressed(file) as stream:
            text = _decode(stream.read(), file)
        yield from _SquadFile(file, text).questions()


def _decode(content: bytes, file: Path) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return decode_line(content.split(b"\n")[line - 1], file, line)  # raises an error that names the byte


class _SquadFile:
    """The JSON of a file, and the current line for error messages. A path such as `data[0]` names a JSON element."""

    def __init__(self, file: Path, text: str) -> None:
        self.file, self.text = file, text
        self.position, self.line = 0, 1

    def questions(self) -> Iterator[Question]:
        for article_path, article in self._list(self._parse(), "data", "the file"):
            title = article.get("title")
            for paragraph_path, paragraph in self._list(article, "paragraphs", article_path):
                context = self._text(paragraph, "context", paragraph_path)
                for path, qa in self._list(paragraph, "qas", paragraph_path):
                    self._seek_question(qa.get("id"))
                    yield self._question(qa, context, title if isinstance(title, str) else "", path)

    def _question(self, qa: Mapping[str, Any], context: str, title: str, path: str) -> Question:
        impossible = qa.get("is_impossible") is True
        return Question(
            id=self._text(qa, "id", path),
            question=self._text(qa, "question", path),
            context=context,
            title=title,
            answers=() if impossible else tuple(self._answers(qa, path)),
            file=self.file,
            line=self.line,
        )

    def _answers(self, qa: Mapping[str, Any], path: str) -> Iterator[Answer]:
        for answer_path, answer in self._list(qa, "answers", path):
            start = answer.get("answer_start")
            if not isinstance(start, int) or isinstance(start, bool) or start < 0:
                expected = 'expected "answer_start" to be a non-negative integer'
                raise self._error(f"{answer_path}: {expected}, found {start!r}")
            yield Answer(text=self._text(answer, "text", answer_path), start=start)

    def _parse(self) -> Mapping[str, Any]:
        try:
            value = json.loads(self.text)
        except json.JSONDecodeError as error:
            message = f"invalid JSON ({error.msg}, character {error.colno} of the line)"
            raise DataError(self.file, error.lineno, message) from None
        except (RecursionError, ValueError) as error:
            raise DataError(self.file, None, f"the JSON cannot be parsed ({type(error).__name__})") from None
        if not isinstance(value, dict):
            raise self._error(f'expected a JSON object with "data", found {type(value).__name__}')
        return value

    def _list(self, parent: Mapping[str, Any], key: str, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the path and the value of each object in the list `parent[key]`."""
        items = parent.get(key)
        if not isinstance(items, list):
            keys = ", ".join(map(str, parent)) or "nothing"
            raise self._error(f'{path}: expected a list "{key}" (SQuAD format), found {keys}')
        for index, item in enumerate(items):
            item_path = f"{key}[{index}]" if path == "the file" else f"{path}.{key}[{index}]"
            if not isinstance(item, dict):
                raise self._error(f"{item_path}: expected an object, found {type(item).__name__}")
            yield item_path, item

    def _text(self, parent: Mapping[str, Any], key: str, path: str) -> str:
        value = parent.get(key)
        if not isinstance(value, str):
            raise self._error(f'{path}: expected a string "{key}", found {value!r}')
        return value

    def _seek_question(self, question_id: object) -> None:
        """Advance to the line that contains the id of this question."""
        if not isinstance(question_id, str):
            return
        forms = "|".join(re.escape(json.dumps(question_id, ensure_ascii=ascii_only)) for ascii_only in (True, False))
        match = re.compile(rf'"id"\s*:\s*(?:{forms})').search(self.text, self.position)
        if match:
            self.line += self.text.count("\n", self.position, match.start())
            self.position = match.start()

    def _error(self, message: str) -> DataError:
        return DataError(self.file, self.line, message)
