"""Faults of many kinds that are injected into clean pairs, with the findings that the doctor should report.

A fault is a function of a `CorruptedPairs` and line indices (from 0). It changes the lines and calls `expect`.
"""

import re
from dataclasses import dataclass, field

from unit.doctor import corpora

PUNCTUATION = re.compile(r"(?<=\w)([,.])")
ENCODINGS = {"en": "cp1252", "de": "cp1252", "fr": "cp1252", "ru": "cp1251", "el": "cp1253"}
NON_ASCII = {"en": "cliché", "de": "Größe", "fr": "déjà", "ru": "ёлка", "el": "ώρα"}
LATIN = ("en", "de", "fr")
HOMOGLYPHS = {"en": "pоrch", "de": "Pоrto", "fr": "pоrte", "ru": "мoре", "el": "λoγική"}
"""Words with one letter of another script that looks the same."""


@dataclass
class CorruptedPairs:
    """Pairs of lines, and the findings that are expected after a fault was injected."""

    languages: tuple[str, str]
    sides: list[list]
    other: list[list]
    """The validation split."""
    third: list[str]
    """The training sentences in a language whose script neither side has."""
    side: int
    """The side that gets the fault."""
    options: dict = field(default_factory=dict)
    head: bytes = b""
    """Bytes before the first line of that side."""
    tail: bytes = b"\n"
    """Bytes after its last line."""
    expected: dict = field(default_factory=dict)
    side_effects: set = field(default_factory=set)
    """Kinds of findings that the fault may cause as well."""

    @property
    def lines(self):
        return self.sides[self.side]

    @property
    def language(self):
        return self.languages[self.side]

    def expect(self, kind, indices, side=None, split="train"):
        self.expected[kind, split, self.side if side is None else side] = [index + 1 for index in indices]


def insert(kind, *strings):
    """A fault that inserts a string into a line."""

    def inject(pairs, indices):
        for number, index in enumerate(indices):
            text = pairs.lines[index]
            position = 1 + index * 7 % (len(text) - 2)
            pairs.lines[index] = text[:position] + strings[number % len(strings)] + text[position:]
        pairs.expect(kind, indices)

    inject.__name__ = kind
    return inject


def append(kind, word_of, *side_effects):
    """A fault that appends a word before the full stop."""

    def inject(pairs, indices):
        for index in indices:
            pairs.lines[index] = f"{pairs.lines[index][:-1]} {word_of(pairs.language)}."
        pairs.side_effects |= set(side_effects)
        pairs.expect(kind, indices)

    inject.__name__ = kind
    return inject


def _mojibake(language):
    if language in LATIN:
        return NON_ASCII["de"].encode().decode("cp1252")
    return NON_ASCII[language].encode().decode("latin-1")


def wrong_encoding(pairs, indices):
    for index in indices:
        text = f"{pairs.lines[index][:-1]} {NON_ASCII[pairs.language]}."
        pairs.lines[index] = text.encode(ENCODINGS[pairs.language])
    pairs.expect("wrong-encoding", indices)


def empty_side(pairs, indices):
    for index in indices:
        pairs.lines[index] = " " if index % 2 else ""
    pairs.expect("empty-side", indices)


def empty_line(pairs, indices):
    for index in indices:
        pairs.sides[0][index] = pairs.sides[1][index] = ""
    pairs.expect("empty-line", indices, side=0)


def duplicate(pairs, indices):
    origin = next(index for index in range(len(pairs.lines)) if index not in indices)
    copies = [index for index in indices if index > origin]
    if not copies:
        origin, copies = indices[0], [len(pairs.lines) - 1]
    for index in copies:
        for side in pairs.sides:
            side[index] = side[origin]
    pairs.expect("duplicate", copies, side=0)


def identical_sides(pairs, indices):
    for index in indices:
        pairs.sides[1][index] = pairs.sides[0][index]
    pairs.side_effects.add("unexpected-script")
    pairs.expect("identical-sides", indices, side=0)


def length_ratio(pairs, indices):
    for index in indices:
        pairs.lines[index] = " ".join([pairs.lines[index]] * 8)
    pairs.expect("length-ratio", indices, side=0)


def mixed_line_ends(pairs, indices):
    for index in indices:
        pairs.lines[index] += "\r"
    pairs.expect("mixed-line-ends", indices)


def unexpected_script(pairs, indices):
    for index in indices:
        pairs.lines[index] = pairs.third[index]
    pairs.expect("unexpected-script", indices)


def truncation(pairs, indices):
    for index in indices:
        for side in pairs.sides:
            side[index] = " ".join(side[index : index + 1] * 12)
    pairs.options["max_length"] = 40
    pairs.expect("truncation", indices, side=0)
    pairs.expect("truncation", indices, side=1)


def very_long_line(pairs, indices):
    for index in indices:
        for side in pairs.sides:
            side[index] = " ".join([side[index]] * 700)
    pairs.expect("very-long-line", indices, side=0)
    pairs.expect("very-long-line", indices, side=1)


def leakage(pairs, indices):
    indices = [index for index in indices if index < len(pairs.other[0])] or [0]
    for index in indices:
        for side in (0, 1):
            pairs.other[side][index] = pairs.sides[side][index]
    pairs.expect("leakage", indices, side=0, split="valid")


def source_leakage(pairs, indices):
    indices = [index for index in indices if index < len(pairs.other[0])] or [0]
    for index in indices:
        pairs.other[0][index] = pairs.sides[0][index]
        pairs.other[1][index] = " ".join([pairs.sides[1][index][:-1], *pairs.sides[1][index].split()[:1]]) + "."
    pairs.expect("source-leakage", indices, side=0, split="valid")


def swapped_sides(pairs, indices):
    for index in indices:
        pairs.sides[0][index], pairs.sides[1][index] = pairs.sides[1][index], pairs.sides[0][index]
    pairs.side_effects.add("unexpected-script")
    pairs.expect("swapped-sides", indices, side=0)


def one_language(pairs, indices):
    for index in indices:
        words = pairs.sides[1 - pairs.side][index].split()
        pairs.lines[index] = " ".join(reversed(words))
    pairs.side_effects.add("unexpected-script")
    pairs.expect("one-language", indices)


def byte_order_mark(pairs, indices):
    pairs.head = b"\xef\xbb\xbf"
    pairs.expect("byte-order-mark", [0])


def no_final_line_end(pairs, indices):
    pairs.tail = b""
    pairs.expect("no-final-line-end", [len(pairs.lines) - 1])


def same_file(pairs, indices):
    pairs.sides[1] = list(pairs.sides[0])
    pairs.side_effects |= {"unexpected-script", "unlike-training"}
    pairs.expect("same-file", [], side=0)


def empty_file(pairs, indices):
    pairs.lines.clear()
    pairs.tail = b""
    pairs.expect("empty-file", [])


def unlike_training(pairs, indices):
    change = str.lower if len(indices) % 2 else lambda text: PUNCTUATION.sub(r" \1", text)
    pairs.other[pairs.side] = [change(text) for text in pairs.other[pairs.side]]
    pairs.expect("unlike-training", [], split="valid")


FAULTS = [
    append("mojibake", _mojibake, "unexpected-script", "control-character", "other-line-end", "zero-width"),
    append("mixed-script-word", HOMOGLYPHS.get),
    insert("control-character", "\x07", "\x1b", "\x7f", "\x80"),
    insert("nul", "\0"),
    insert("zero-width", "\u200b", "\u00ad", "\ufeff", "\u2060"),
    insert("direction-mark", "\u202e", "\u200f", "\u2066"),
    insert("replacement-character", "\ufffd"),
    insert("private-character", "\ue123"),
    insert("other-line-end", "\u2028", "\u2029", "\x85"),
    insert("lone-return", "\r"),
    insert("markup", "&amp;", "<br>", "&#39;", "<a href='x'>", "</p>"),
    wrong_encoding,
    empty_side,
    empty_line,
    duplicate,
    identical_sides,
    length_ratio,
    mixed_line_ends,
    unexpected_script,
    truncation,
    very_long_line,
    leakage,
    source_leakage,
    swapped_sides,
    one_language,
    byte_order_mark,
    no_final_line_end,
    same_file,
    empty_file,
    unlike_training,
]


def write(folder, pairs):
    """Write the splits to files: {split: [source, target]}."""
    files = {}
    for split, sides in (("train", pairs.sides), ("valid", pairs.other)):
        files[split] = [corpora.write(folder / f"{split}.{number}", lines) for number, lines in enumerate(sides)]
    path = files["train"][pairs.side]
    content = pairs.head + path.read_bytes()
    path.write_bytes(content[:-1] + pairs.tail if content.endswith(b"\n") else content)
    return files


def findings_by_file(report, files):
    """The lines of each kind of finding in each file."""
    names = {str(path): (split, side) for split, paths in files.items() for side, path in enumerate(paths)}
    return {(finding.kind, *names[finding.file]): list(finding.lines) for finding in report.findings}
