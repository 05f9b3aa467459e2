"""Pairs whose sides are swapped, or both in one language."""

from __future__ import annotations

import math
from collections import Counter

from regard.doctor import finding_kinds
from regard.doctor.finding import Ledger
from regard.doctor.tolerant_reader import Rows

LEARN, KNOWN = 5000, 4
STRONG = 4.0
"""How much more likely (in powers of e) a side must be as the other side before it counts as that."""


class Languages:
    """Pairs whose sides are swapped, or both in one language: told by words that stand on one side only.

    The words are learnt from the first pairs, so both sides need words parted by spaces.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.waiting: list[Rows] = []
        self.held = 0
        self.worth: dict[str, float] | None = None
        """For each word, how much it speaks for the source side."""

    def see(self, rows: Rows) -> None:
        """Some pairs more. The first are held back until enough is learnt."""
        if self.worth is None:
            self.waiting.append(rows)
            self.held += len(rows.lines)
            if self.held < LEARN:
                return
            self._learn()
            return
        self._judge(rows)

    def finish(self) -> None:
        """Judge what is still held back."""
        if self.worth is None and self.waiting:
            self._learn()

    def _learn(self) -> None:
        source, target = Counter[str](), Counter[str]()
        for rows in self.waiting:
            for words, texts in ((source, rows.fields["source"]), (target, rows.fields["target"])):
                words.update(word for text in texts for word in set(text.lower().split()))
        self.worth = {
            word: max(-3.0, min(3.0, math.log((source[word] + 0.5) / (target[word] + 0.5))))
            for word in source | target
            if source[word] + target[word] >= KNOWN
        }
        for rows in self.waiting:
            self._judge(rows)
        self.waiting = []

    def _judge(self, rows: Rows) -> None:
        sources, targets = rows.fields["source"], rows.fields["target"]
        for line, source, target in zip(rows.lines, sources, targets, strict=True):
            if source == target:
                continue
            if self._sum(source) > 0 and self._sum(target) < 0:
                continue  # as it should be
            ours, theirs = self._speaks(source), self._speaks(target)
            if ours < -STRONG and theirs > STRONG:
                self.ledger.note(finding_kinds.SWAPPED, rows.file, line, f"{source} ||| {target}")
            elif ours < -STRONG and theirs < -STRONG:
                self.ledger.note(finding_kinds.ONE_LANGUAGE, rows.files["source"], line, source)
            elif ours > STRONG and theirs > STRONG:
                self.ledger.note(finding_kinds.ONE_LANGUAGE, rows.files["target"], line, target)

    def _sum(self, text: str) -> float:
        worth = self.worth or {}
        return sum([worth[word] for word in text.lower().split() if word in worth], start=0.0)

    def _speaks(self, text: str) -> float:
        """How much the words of a text speak for the source side; 0 where few of them say anything."""
        assert self.worth is not None
        values = [value for word in text.lower().split() if (value := self.worth.get(word))]
        clear = [value for value in values if abs(value) > 1]
        # A name or a loanword says nothing: most of the telling words must agree.
        agree = sum(value > 0 for value in clear) if sum(values) > 0 else sum(value < 0 for value in clear)
        return sum(values) if clear and agree >= 0.8 * len(clear) and agree >= 2 else 0.0
