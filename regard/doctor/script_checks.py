"""Checks for lines in an unexpected script, and for words that mix scripts."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from regard.doctor.finding import FindingCollector
from regard.doctor.finding_kinds import LOOKALIKE, SCRIPT
from regard.doctor.split_reader import TEXT_FIELDS, SplitBatch

LANGUAGE_SCRIPTS = {
    "Japanese": {"Han", "Hiragana", "Katakana"},
    "Chinese": {"Han", "Bopomofo"},
    "Korean": {"Hangul", "Han"},
}
SCRIPT_EXCEPTIONS = {"CJK": "Han", "IDEOGRAPHIC": "Han", "KATAKANA-HIRAGANA": "Katakana", "FEMININE": "Latin"}
SCRIPT_EXCEPTIONS |= {"MASCULINE": "Latin", "KANGXI": "Han", "VERTICAL": "Hiragana"}
PREFIXES = ("FULLWIDTH", "HALFWIDTH", "OLD")
COMMON_NAME_WORDS = {
    "MATHEMATICAL",
    "MODIFIER",
    "MICRO",
    "OHM",
    "KELVIN",
    "ANGSTROM",
    "SCRIPT",
    "BLACK-LETTER",
    "DOUBLE-STRUCK",
}
COMMON_NAME_WORDS |= {
    "SUPERSCRIPT",
    "SUBSCRIPT",
    "EULER",
    "ALEF",
    "BET",
    "GIMEL",
    "DALET",
    "INFORMATION",
    "TURNED",
    "REVERSED",
}
HOMOGLYPHS = {
    "Cyrillic": ("\u0400-\u04ff", "аАВсСеЕНіІјЈкКМоОрРѕЅТхХуУ", "aABcCeEHiIjJkKMoOpPsSTxXyY"),
    "Greek": ("\u0370-\u03ff", "ΑΒΕΖΗΙΚΜΝοΟρΡΤυΥΧν", "ABEZHIKMNoOpPTuYXv"),
}
"""For each script: its letters, those that look like Latin letters, and these Latin letters."""
MIXED_SCRIPT_PATTERNS = {
    script: re.compile(
        f"[{other}][A-Za-z]{{2}}|[A-Za-z]{{2}}[{other}]|[{latin}][{letters}]{{2}}|[{letters}]{{2}}[{latin}]"
    )
    for script, (letters, other, latin) in HOMOGLYPHS.items()
}


@functools.cache
def script_of(char: str) -> str | None:
    """Return the script of a letter ("Latin", "Cyrillic", "Han"), by its Unicode name. None if it has no own script."""
    if not char.isalpha():
        return None
    words = unicodedata.name(char, "").split()
    if not words or words[0] in COMMON_NAME_WORDS:
        return None
    first = words[1] if words[0] in PREFIXES and len(words) > 1 else words[0]
    return SCRIPT_EXCEPTIONS.get(first, first.capitalize())


def scripts_by_name(name: str) -> set[str]:
    """Return the scripts of a name: one script, or those of a language that uses several."""
    return LANGUAGE_SCRIPTS.get(name.capitalize(), {name.capitalize()})


class ScriptCheck:
    """Lines with more than half of their letters in an unexpected script, and words that mix scripts.

    The expected scripts of a side are given, or those with at least a fifth of the letters in the first block of lines.
    """

    def __init__(self, collector: FindingCollector, expected: Mapping[str, str]) -> None:
        self.collector = collector
        self.expected = {side: scripts_by_name(name) for side, name in expected.items()}

    def update(self, batch: SplitBatch) -> None:
        """Check the texts of a batch."""
        for side in TEXT_FIELDS:
            if side in batch.fields:
                self._update_side(side, batch.files[side], batch.lines, [text or "" for text in batch.fields[side]])
        if "words" in batch.fields:
            self._update_side("words", batch.file, batch.lines, [" ".join(words) for words in batch.fields["words"]])

    def finish(self) -> None:
        """Nothing to do: findings are added in `update`."""

    def _update_side(self, side: str, file: Path, lines: Sequence[int], texts: Sequence[str]) -> None:
        block = "\n".join(texts)
        if side not in self.expected:
            self._infer_expected(side, block)
        expected = self.expected.get(side)
        if not expected or (block.isascii() and "Latin" in expected):
            return
        present = set(block)
        for script in {script_of(char) for char in present} & set(MIXED_SCRIPT_PATTERNS):
            self._check_mixed_words(MIXED_SCRIPT_PATTERNS[str(script)], file, lines, texts)
        foreign = [char for char in present if script_of(char) not in expected and script_of(char)]
        if foreign:
            self._check_foreign(foreign, expected, file, lines, texts)

    def _infer_expected(self, side: str, block: str) -> None:
        letters = Counter[str]()
        for char, count in Counter(block).items():
            if script := script_of(char):
                letters[script] += count
        if letters:
            self.expected[side] = {script for script, count in letters.items() if count >= 0.2 * letters.total()}

    def _check_foreign(
        self,
        foreign: Sequence[str],
        expected: Collection[str],
        file: Path,
        lines: Sequence[int],
        texts: Sequence[str],
    ) -> None:
        pattern = re.compile("[" + re.escape("".join(foreign)) + "]")
        for line, text in zip(lines, texts, strict=True):
            unexpected = pattern.findall(text)
            letters = sum(script_of(char) is not None for char in text) if unexpected else 0
            if letters >= 3 and len(unexpected) > letters / 2:
                script = Counter(script_of(char) for char in unexpected).most_common(1)[0][0]
                message = f"{script}, expected {' or '.join(sorted(expected))}: {text}"
                self.collector.add_line(SCRIPT, file, line, message)

    def _check_mixed_words(
        self, pattern: re.Pattern[str], file: Path, lines: Sequence[int], texts: Sequence[str]
    ) -> None:
        for line, text in zip(lines, texts, strict=True):
            if match := pattern.search(text):
                self.collector.add_line(LOOKALIKE, file, line, text, match.start())
