"""Checks of questions and their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.data.doctor import kinds
from regard.data.doctor.finding import Ledger, clip
from regard.data.doctor.reading import Rows
from regard.data.doctor.texts import blank


class Answers:
    """Answers that are not where they are said to be, and questions that are asked twice."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.ids: dict[str, int] = {}

    def see(self, rows: Rows) -> None:
        """Some questions more."""
        names = ("question", "context", "answers", "id")
        impossible = rows.fields.get("impossible", [None] * len(rows.lines))
        columns = [rows.fields[name] for name in names]
        for line, question, context, answers, name, without in zip(rows.lines, *columns, impossible, strict=True):
            if name and self.ids.setdefault(name, line) != line:
                self.ledger.note(kinds.SAME_ID, rows.file, line, f"{name}, as line {self.ids[name]}: {question}")
            if without is True and answers:
                self.ledger.note(kinds.ANSWERED_IMPOSSIBLE, rows.file, line, f"{question} {answers[0][0]}")
            elif without is not True:
                self._look(rows, line, question, context, answers)
            if without is False and not answers:
                self.ledger.note(kinds.NO_ANSWER, rows.file, line, question)

    def finish(self) -> None:
        """All was said on the way."""

    def _look(self, rows: Rows, line: int, question: str, context: str, answers: Sequence[tuple[str, Any]]) -> None:
        for text, start in answers:
            if blank(text):
                self.ledger.note(kinds.EMPTY_ANSWER, rows.file, line, question)
            elif text not in context:
                self.ledger.note(kinds.NOT_IN_CONTEXT, rows.file, line, _told(question, text))
            elif isinstance(start, int) and context[max(start, 0) :][: len(text)] != text:
                said = f"{_told(question, text)} is said to begin at {start}, {away(context, text, start)}"
                self.ledger.note(kinds.OFFSET, rows.file, line, said)


def away(context: str, text: str, start: int) -> str:
    """How far an answer is from where it is said to be, and why, if that can be told."""
    places = []
    at = context.find(text)
    while at >= 0:
        places.append(at)
        at = context.find(text, at + 1)
    for place in places:
        if len(context[:place].encode()) == start:
            return f"stands at {place}: the start counts bytes, not characters"
        if len(context[:place].encode("utf-16-le")) // 2 == start:
            return f"stands at {place}: the start counts UTF-16 units, as JavaScript does"
    nearest = min(places, key=lambda place: abs(place - start))
    return f"stands at {nearest}: off by {start - nearest:+}"


def _told(question: str, text: str) -> str:
    return f"{clip(question, width=40)} {clip(text, width=40)!r}"
