"""SQuAD's JSON, versions 1.1 and 2.0: articles, their paragraphs, and questions about each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.data.example import Answer, Question
from regard.tokenization.text_files import DataError, decode, open_bytes


def read_squad(files: Sequence[Path]) -> Iterator[Question]:
    """Questions in the order of the file. The document is held whole, as JSON has to be."""
    for file in files:
        with open_bytes(file) as stream:
            text = _decode(stream.read(), file)
        yield from _Document(file, text).questions()


def _decode(content: bytes, file: Path) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return decode(content.split(b"\n")[line - 1], file, line)  # says which byte of the line it is


class _Document:
    """A file's JSON, and the line that is being read in it."""

    def __init__(self, file: Path, text: str) -> None:
        self.file, self.text = file, text
        self.place, self.line = 0, 1

    def questions(self) -> Iterator[Question]:
        for where, article in self._list(self._parse(), "data", "the file"):
            title = article.get("title")
            for there, paragraph in self._list(article, "paragraphs", where):
                context = self._text(paragraph, "context", there)
                for here, asked in self._list(paragraph, "qas", there):
                    self._find(asked.get("id"))
                    yield self._question(asked, context, title if isinstance(title, str) else "", here)

    def _question(self, asked: Mapping[str, Any], context: str, title: str, where: str) -> Question:
        impossible = asked.get("is_impossible") is True
        return Question(
            id=self._text(asked, "id", where),
            question=self._text(asked, "question", where),
            context=context,
            title=title,
            answers=() if impossible else tuple(self._answers(asked, where)),
            file=self.file,
            line=self.line,
        )

    def _answers(self, asked: Mapping[str, Any], where: str) -> Iterator[Answer]:
        for here, answer in self._list(asked, "answers", where):
            start = answer.get("answer_start")
            if not isinstance(start, int) or isinstance(start, bool) or start < 0:
                raise self._error(f'{here} should have an "answer_start", a number from 0 up, found {start!r}')
            yield Answer(text=self._text(answer, "text", here), start=start)

    def _parse(self) -> Mapping[str, Any]:
        try:
            value = json.loads(self.text)
        except json.JSONDecodeError as error:
            said = f"this is no JSON ({error.msg}, character {error.colno} of the line)"
            raise DataError(self.file, error.lineno, said) from None
        except (RecursionError, ValueError) as error:
            raise DataError(self.file, None, f"this JSON cannot be read ({type(error).__name__})") from None
        if not isinstance(value, dict):
            raise self._error(f'expected a JSON object with "data", found {type(value).__name__}')
        return value

    def _list(self, value: Mapping[str, Any], key: str, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        found = value.get(key)
        if not isinstance(found, list):
            there = ", ".join(map(str, value)) or "nothing"
            raise self._error(f'{where} should have a list "{key}", as SQuAD has; found {there}')
        for number, one in enumerate(found):
            here = f"{key}[{number}]" if where == "the file" else f"{where}.{key}[{number}]"
            if not isinstance(one, dict):
                raise self._error(f"{here} should be an object, found {type(one).__name__}")
            yield here, one

    def _text(self, value: Mapping[str, Any], key: str, where: str) -> str:
        found = value.get(key)
        if not isinstance(found, str):
            raise self._error(f'{where} should have a text "{key}", found {found!r}')
        return found

    def _find(self, name: object) -> None:
        """Move on to the line on which this question's id stands."""
        if not isinstance(name, str):
            return
        written = "|".join(re.escape(json.dumps(name, ensure_ascii=ascii_only)) for ascii_only in (True, False))
        found = re.compile(rf'"id"\s*:\s*(?:{written})').search(self.text, self.place)
        if found:
            self.line += self.text.count("\n", self.place, found.start())
            self.place = found.start()

    def _error(self, said: str) -> DataError:
        return DataError(self.file, self.line, said)
