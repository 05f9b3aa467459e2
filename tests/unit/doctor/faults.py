"""Faults of many kinds, put into clean pairs at given places. Each says what the doctor should find, and where.

A fault is a function of a `Sown` and the places (from 0); it changes the lines and calls `expect`.
"""

import re
from dataclasses import dataclass, field

from unit.doctor import corpora

TOKENISED = re.compile(r"(?<=\w)([,.])")
ENCODINGS = {"en": "cp1252", "de": "cp1252", "fr": "cp1252", "ru": "cp1251", "el": "cp1253"}
BEYOND = {"en": "cliché", "de": "Größe", "fr": "déjà", "ru": "ёлка", "el": "ώρα"}
LATIN = ("en", "de", "fr")
TWIN = {"en": "pоrch", "de": "Pоrto", "fr": "pоrte", "ru": "мoре", "el": "λoγική"}
"""Words with one letter of another script that looks the same."""


@dataclass
class Sown:
    """Pairs of lines, and what was done to them."""

    languages: tuple[str, str]
    sides: list[list]
    other: list[list]
    """The validation set."""
    third: list[str]
    """The training sentences in a language of another script than either side."""
    side: int
    """The side on which the fault shall be."""
    options: dict = field(default_factory=dict)
    head: bytes = b""
    """What stands before the first line of that side."""
    tail: bytes = b"\n"
    """What stands behind its last line."""
    expected: dict = field(default_factory=dict)
    beside: set = field(default_factory=set)
    """Kinds of findings that come with the fault."""

    @property
    def lines(self):
        return self.sides[self.side]

    @property
    def language(self):
        return self.languages[self.side]

    def expect(self, kind, places, side=None, split="train"):
        self.expected[kind, split, self.side if side is None else side] = [place + 1 for place in places]


def insert(kind, *pieces):
    """A fault that consists of a piece of text within a line."""

    def sow(sown, places):
        for number, place in enumerate(places):
            text = sown.lines[place]
            at = 1 + place * 7 % (len(text) - 2)
            sown.lines[place] = text[:at] + pieces[number % len(pieces)] + text[at:]
        sown.expect(kind, places)

    sow.__name__ = kind
    return sow


def append(kind, word_of, *beside):
    """A fault that consists of a word before the full stop."""

    def sow(sown, places):
        for place in places:
            sown.lines[place] = f"{sown.lines[place][:-1]} {word_of(sown.language)}."
        sown.beside |= set(beside)
        sown.expect(kind, places)

    sow.__name__ = kind
    return sow


def _mojibake(language):
    if language in LATIN:
        return BEYOND["de"].encode().decode("cp1252")
    return BEYOND[language].encode().decode("latin-1")


def wrong_encoding(sown, places):
    for place in places:
        text = f"{sown.lines[place][:-1]} {BEYOND[sown.language]}."
        sown.lines[place] = text.encode(ENCODINGS[sown.language])
    sown.expect("wrong-encoding", places)


def empty_side(sown, places):
    for place in places:
        sown.lines[place] = " " if place % 2 else ""
    sown.expect("empty-side", places)


def empty_line(sown, places):
    for place in places:
        sown.sides[0][place] = sown.sides[1][place] = ""
    sown.expect("empty-line", places, side=0)


def duplicate(sown, places):
    origin = next(place for place in range(len(sown.lines)) if place not in places)
    copies = [place for place in places if place > origin]
    if not copies:
        origin, copies = places[0], [len(sown.lines) - 1]
    for place in copies:
        for side in sown.sides:
            side[place] = side[origin]
    sown.expect("duplicate", copies, side=0)


def identical_sides(sown, places):
    for place in places:
        sown.sides[1][place] = sown.sides[0][place]
    sown.beside.add("unexpected-script")
    sown.expect("identical-sides", places, side=0)


def length_ratio(sown, places):
    for place in places:
        sown.lines[place] = " ".join([sown.lines[place]] * 8)
    sown.expect("length-ratio", places, side=0)


def mixed_line_ends(sown, places):
    for place in places:
        sown.lines[place] += "\r"
    sown.expect("mixed-line-ends", places)


def unexpected_script(sown, places):
    for place in places:
        sown.lines[place] = sown.third[place]
    sown.expect("unexpected-script", places)


def truncation(sown, places):
    for place in places:
        for side in sown.sides:
            side[place] = " ".join(side[place : place + 1] * 12)
    sown.options["length"] = 40
    sown.expect("truncation", places, side=0)
    sown.expect("truncation", places, side=1)


def very_long_line(sown, places):
    for place in places:
        for side in sown.sides:
            side[place] = " ".join([side[place]] * 700)
    sown.expect("very-long-line", places, side=0)
    sown.expect("very-long-line", places, side=1)


def leakage(sown, places):
    places = [place for place in places if place < len(sown.other[0])] or [0]
    for place in places:
        for side in (0, 1):
            sown.other[side][place] = sown.sides[side][place]
    sown.expect("leakage", places, side=0, split="valid")


def source_leakage(sown, places):
    places = [place for place in places if place < len(sown.other[0])] or [0]
    for place in places:
        sown.other[0][place] = sown.sides[0][place]
        sown.other[1][place] = " ".join([sown.sides[1][place][:-1], *sown.sides[1][place].split()[:1]]) + "."
    sown.expect("source-leakage", places, side=0, split="valid")


def swapped_sides(sown, places):
    for place in places:
        sown.sides[0][place], sown.sides[1][place] = sown.sides[1][place], sown.sides[0][place]
    sown.beside.add("unexpected-script")
    sown.expect("swapped-sides", places, side=0)


def one_language(sown, places):
    for place in places:
        words = sown.sides[1 - sown.side][place].split()
        sown.lines[place] = " ".join(reversed(words))
    sown.beside.add("unexpected-script")
    sown.expect("one-language", places)


def byte_order_mark(sown, places):
    sown.head = b"\xef\xbb\xbf"
    sown.expect("byte-order-mark", [0])


def no_final_line_end(sown, places):
    sown.tail = b""
    sown.expect("no-final-line-end", [len(sown.lines) - 1])


def same_file(sown, places):
    sown.sides[1] = list(sown.sides[0])
    sown.beside |= {"unexpected-script", "unlike-training"}
    sown.expect("same-file", [], side=0)


def empty_file(sown, places):
    sown.lines.clear()
    sown.tail = b""
    sown.expect("empty-file", [])


def unlike_training(sown, places):
    change = str.lower if len(places) % 2 else lambda text: TOKENISED.sub(r" \1", text)
    sown.other[sown.side] = [change(text) for text in sown.other[sown.side]]
    sown.expect("unlike-training", [], split="valid")


FAULTS = [
    append("mojibake", _mojibake, "unexpected-script", "control-character", "other-line-end", "zero-width"),
    append("mixed-script-word", TWIN.get),
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


def write(folder, sown):
    """The sets as files: {split: [source, target]}."""
    files = {}
    for split, sides in (("train", sown.sides), ("valid", sown.other)):
        files[split] = [corpora.write(folder / f"{split}.{number}", lines) for number, lines in enumerate(sides)]
    path = files["train"][sown.side]
    content = sown.head + path.read_bytes()
    path.write_bytes(content[:-1] + sown.tail if content.endswith(b"\n") else content)
    return files


def found(report, files):
    """What a report says: the lines of each kind in each file."""
    names = {str(path): (split, side) for split, paths in files.items() for side, path in enumerate(paths)}
    return {(one.kind, *names[one.file]): list(one.lines) for one in report.findings}
