"""Checks of questions and their answers."""

from __future__ import annotations

from typing import Any

from regard.doctor import finding_kinds
from regard.doctor.finding import Kind, Ledger, clip
from regard.doctor.text_checks import blank
from regard.doctor.tolerant_reader import Rows


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
        for row, line in enumerate(rows.lines, 1):
            question, context, answers, name, without = (column[row - 1] for column in (*columns, impossible))
            if name in self.ids and name:
                self.ledger.note(
                    finding_kinds.SAME_ID, rows.file, line, f"{name}, as line {self.ids[name]}: {question}", row=row
                )
            self.ids.setdefault(name, line)
            if without is True and answers:
                self.ledger.note(
                    finding_kinds.ANSWERED_IMPOSSIBLE, rows.file, line, f"{question} {answers[0][0]}", row=row
                )
            if without is False and not answers:
                self.ledger.note(finding_kinds.NO_ANSWER, rows.file, line, question, row=row)
            for text, start in answers if without is not True else ():
                kind, why = _fault(context, text, start)
                if kind is not None:
                    self.ledger.note(kind, rows.file, line, f"{why}{clip(question, width=40)} {text!r}", row=row)

    def finish(self) -> None:
        """All was said on the way."""


def _fault(context: str, text: str, start: Any) -> tuple[Kind | None, str]:
    """What is wrong with an answer, and why."""
    if blank(text):
        return finding_kinds.EMPTY_ANSWER, ""
    if text not in context:
        return finding_kinds.NOT_IN_CONTEXT, ""
    if isinstance(start, int) and context[max(start, 0) :][: len(text)] != text:
        return finding_kinds.OFFSET, f"{away(context, text, start)}: "
    return None, ""


def away(context: str, text: str, start: int) -> str:
    """How far an answer is from where it is said to be, and why, if that can be told."""
    places = []
    at = context.find(text)
    while at >= 0:
        places.append(at)
        at = context.find(text, at + 1)
    for place in places:
        if len(context[:place].encode()) == start:
            return f"{start} for {place} (counts bytes, not characters)"
        if len(context[:place].encode("utf-16-le")) // 2 == start:
            return f"{start} for {place} (counts UTF-16 units, as JavaScript does)"
    nearest = min(places, key=lambda place: abs(place - start))
    return f"{start} for {nearest} (off by {start - nearest:+})"
