"""Which script text is in, and lines that are in another."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from regard.doctor.finding import Ledger
from regard.doctor.finding_kinds import LOOKALIKE, SCRIPT
from regard.doctor.tolerant_reader import TEXTS, Rows

LANGUAGES = {
    "Japanese": {"Han", "Hiragana", "Katakana"},
    "Chinese": {"Han", "Bopomofo"},
    "Korean": {"Hangul", "Han"},
}
SPECIAL = {"CJK": "Han", "IDEOGRAPHIC": "Han", "KATAKANA-HIRAGANA": "Katakana", "FEMININE": "Latin"}
SPECIAL |= {"MASCULINE": "Latin", "KANGXI": "Han", "VERTICAL": "Hiragana"}
PREFIXES = ("FULLWIDTH", "HALFWIDTH", "OLD")
COMMON = {"MATHEMATICAL", "MODIFIER", "MICRO", "OHM", "KELVIN", "ANGSTROM", "SCRIPT", "BLACK-LETTER", "DOUBLE-STRUCK"}
COMMON |= {"SUPERSCRIPT", "SUBSCRIPT", "EULER", "ALEF", "BET", "GIMEL", "DALET", "INFORMATION", "TURNED", "REVERSED"}
TWINS = {
    "Cyrillic": ("\u0400-\u04ff", "аАВсСеЕНіІјЈкКМоОрРѕЅТхХуУ", "aABcCeEHiIjJkKMoOpPsSTxXyY"),
    "Greek": ("\u0370-\u03ff", "ΑΒΕΖΗΙΚΜΝοΟρΡΤυΥΧν", "ABEZHIKMNoOpPTuYXv"),
}
"""Letters of another script, those among them that look like Latin ones, and the Latin ones that look like them."""
MIXED_WORD = {
    script: re.compile(f"[{theirs}][A-Za-z]{{2}}|[A-Za-z]{{2}}[{theirs}]|[{ours}][{all_}]{{2}}|[{all_}]{{2}}[{ours}]")
    for script, (all_, theirs, ours) in TWINS.items()
}


@functools.cache
def script_of(char: str) -> str | None:
    """The script of a letter ("Latin", "Cyrillic", "Han"), by its name in Unicode. None for what belongs to all."""
    if not char.isalpha():
        return None
    words = unicodedata.name(char, "").split()
    if not words or words[0] in COMMON:
        return None
    first = words[1] if words[0] in PREFIXES and len(words) > 1 else words[0]
    return SPECIAL.get(first, first.capitalize())


def named(name: str) -> set[str]:
    """The scripts that a person means by a name: one script, or those of a language that uses several."""
    return LANGUAGES.get(name.capitalize(), {name.capitalize()})


class Scripts:
    """Lines most of whose letters are in another script than their side is written in.

    The scripts of a side are those that were asked for, or those of a fifth of the letters in the first lines.
    """

    def __init__(self, ledger: Ledger, expected: Mapping[str, str]) -> None:
        self.ledger = ledger
        self.expected = {side: named(name) for side, name in expected.items()}

    def see(self, rows: Rows) -> None:
        """Some rows more."""
        for side in TEXTS:
            if side in rows.fields:
                self._see(side, rows.files[side], rows.lines, [text or "" for text in rows.fields[side]])
        if "words" in rows.fields:
            self._see("words", rows.file, rows.lines, [" ".join(words) for words in rows.fields["words"]])

    def finish(self) -> None:
        """All was said on the way."""

    def _see(self, side: str, file: Path, numbers: Sequence[int], texts: Sequence[str]) -> None:
        block = "\n".join(texts)
        if side not in self.expected:
            self._learn(side, block)
        expected = self.expected.get(side)
        if not expected or (block.isascii() and "Latin" in expected):
            return
        present = set(block)
        for script in {script_of(char) for char in present} & set(MIXED_WORD):
            self._mixed_words(MIXED_WORD[str(script)], file, numbers, texts)
        foreign = [char for char in present if script_of(char) not in expected and script_of(char)]
        if foreign:
            self._foreign(foreign, expected, file, numbers, texts)

    def _learn(self, side: str, block: str) -> None:
        letters = Counter[str]()
        for char, count in Counter(block).items():
            if script := script_of(char):
                letters[script] += count
        if letters:
            self.expected[side] = {script for script, count in letters.items() if count >= 0.2 * letters.total()}

    def _foreign(
        self,
        foreign: Sequence[str],
        expected: Collection[str],
        file: Path,
        numbers: Sequence[int],
        texts: Sequence[str],
    ) -> None:
        pattern = re.compile("[" + re.escape("".join(foreign)) + "]")
        for number, text in zip(numbers, texts, strict=True):
            odd = pattern.findall(text)
            letters = sum(script_of(char) is not None for char in text) if odd else 0
            if letters >= 3 and len(odd) > letters / 2:
                scripts = Counter(script_of(char) for char in odd).most_common(1)[0][0]
                self.ledger.note(SCRIPT, file, number, f"{scripts}, expected {' or '.join(sorted(expected))}: {text}")

    def _mixed_words(self, pattern: re.Pattern[str], file: Path, numbers: Sequence[int], texts: Sequence[str]) -> None:
        for number, text in zip(numbers, texts, strict=True):
            if match := pattern.search(text):
                self.ledger.note(LOOKALIKE, file, number, text, match.start())
