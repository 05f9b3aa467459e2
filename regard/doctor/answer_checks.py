"""Checks of question-answering data."""

from __future__ import annotations

from typing import Any

from regard.data.example import FREE_ANSWER
from regard.doctor import finding_kinds
from regard.doctor.finding import FindingCollector, FindingKind, excerpt
from regard.doctor.split_reader import SplitBatch
from regard.doctor.text_checks import is_blank


class AnswerCheck:
    """Answers that are missing or not at their offset, and ids that occur twice."""

    def __init__(self, collector: FindingCollector) -> None:
        self.collector = collector
        self.first_lines: dict[str, int] = {}

    def update(self, batch: SplitBatch) -> None:
        """Check a batch of questions."""
        names = ("question", "context", "answers", "id")
        impossible = batch.fields.get("impossible", [None] * len(batch.lines))
        columns = [batch.fields[name] for name in names]
        for row, line in enumerate(batch.lines, 1):
            question, context, answers, id_, is_impossible = (column[row - 1] for column in (*columns, impossible))
            if id_ in self.first_lines and id_:
                self.collector.add_line(
                    finding_kinds.SAME_ID,
                    batch.file,
                    line,
                    f"{id_}, same as line {self.first_lines[id_]}: {question}",
                    row=row,
                )
            self.first_lines.setdefault(id_, line)
            if is_impossible is True and answers:
                self.collector.add_line(
                    finding_kinds.ANSWERED_IMPOSSIBLE, batch.file, line, f"{question} {answers[0][0]}", row=row
                )
            if is_impossible is False and not answers:
                self.collector.add_line(finding_kinds.NO_ANSWER, batch.file, line, question, row=row)
            for text, start in answers if is_impossible is not True else ():
                kind, reason = _answer_fault(context, text, start)
                if kind is not None:
                    self.collector.add_line(
                        kind, batch.file, line, f"{reason}{excerpt(question, width=40)} {text!r}", row=row
                    )

    def finish(self) -> None:
        """Nothing to do: findings are added in `update`."""


def _answer_fault(context: str, text: str, start: Any) -> tuple[FindingKind | None, str]:
    """Return the kind of problem of an answer, or None, and a prefix for the example."""
    if is_blank(text):
        return finding_kinds.EMPTY_ANSWER, ""
    if start == FREE_ANSWER:
        return None, ""
    if text not in context:
        return finding_kinds.NOT_IN_CONTEXT, ""
    if isinstance(start, int) and context[max(start, 0) :][: len(text)] != text:
        return finding_kinds.OFFSET, f"{describe_offset(context, text, start)}: "
    return None, ""


def describe_offset(context: str, text: str, start: int) -> str:
    """Describe how far `answer_start` is from the nearest occurrence of the answer, and the likely cause."""
    offsets = []
    offset = context.find(text)
    while offset >= 0:
        offsets.append(offset)
        offset = context.find(text, offset + 1)
    for offset in offsets:
        if len(context[:offset].encode()) == start:
            return f"offset {start}, expected {offset} (counts bytes, not characters)"
        if len(context[:offset].encode("utf-16-le")) // 2 == start:
            return f"offset {start}, expected {offset} (counts UTF-16 units, as JavaScript does)"
    nearest = min(offsets, key=lambda offset: abs(offset - start))
    return f"offset {start}, expected {nearest} (off by {start - nearest:+})"
