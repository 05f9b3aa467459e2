"""Which encoding bytes that are no UTF-8 are probably in."""

from __future__ import annotations

import itertools
import unicodedata

SINGLE = ("cp1252", "cp1251", "koi8-r", "cp1255", "cp1253", "cp1250", "cp1256")
"""Of two that fit equally, the first is taken: Hebrew can be read as Greek, but hardly Greek as Hebrew."""
DOUBLE = {"shift_jis": (0x81, 0x98), "euc_jp": (0xA1, 0xCF), "euc_kr": (0xA1, 0xC8)}
DOUBLE |= {"gb18030": (0xA1, 0xD7), "big5": (0xA1, 0xC6)}
"""Encodings of East Asia with the range of first bytes in which their common characters stand."""
FREQUENT = "оеаинтсрвлкм"
PUNCTUATION = "\u00a0‘’‚“”„«»…–—•§°€£©®™´·¿¡№"


def probable(sample: bytes) -> str:
    """The encoding in which a sample reads most like words. The sample is no UTF-8.

    In the right encoding the characters beyond ASCII are letters of one script, in words of that script, with capitals
    only where words begin; in a wrong one they are symbols, lone accents and capitals in the middle.
    """
    scores = {name: _score(sample, name) for name in (*SINGLE, *DOUBLE)}
    return max(scores, key=lambda name: scores[name])


def wide(head: bytes) -> str | None:
    """Whether a file that begins like this is in UTF-16 or UTF-32: it has a mark, or every second byte is 0."""
    marks = {b"\xff\xfe\x00\x00": "utf-32", b"\x00\x00\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
    for mark, name in marks.items():
        if head.startswith(mark):
            return name
    for first, name in ((0, "utf-16-be"), (1, "utf-16-le")):
        zeros = head[first::2].count(0)
        if len(head) >= 8 and zeros > 0.7 * (len(head) // 2) and head[1 - first :: 2].count(0) == 0:
            return name
    return None


def _score(sample: bytes, name: str) -> float:
    try:
        text = sample.decode(name)
    except UnicodeDecodeError:
        return -10.0
    if name in DOUBLE:
        return _score_double(text, name)
    values = [_worth(text, place, char) for place, char in enumerate(text) if ord(char) > 127]
    return sum(values) / max(len(values), 1)


def _score_double(text: str, name: str) -> float:
    low, high = DOUBLE[name]
    beyond = [char for char in text if ord(char) > 127]
    common = sum(low <= char.encode(name)[0] <= high and unicodedata.category(char)[0] != "C" for char in beyond)
    # Half-width kana is what other encodings become in Shift JIS; nobody writes whole texts in it.
    half = sum("\uff61" <= char <= "\uff9f" for char in beyond)
    # Japanese has kana between its Chinese characters.
    kana = sum("\u3040" <= char <= "\u30ff" for char in beyond)
    half += len(beyond) if name in ("shift_jis", "euc_jp") and kana < 0.1 * len(beyond) else 0
    # A sample of scattered single accents can read as a few odd characters: words of them are wanted.
    joined = sum(ord(a) > 127 and ord(b) > 127 for a, b in itertools.pairwise(text))
    return (common - 2 * half) / max(len(beyond), 1) - 0.5 + min(0.5, joined / max(len(beyond), 1))


def _worth(text: str, place: int, char: str) -> float:
    """How plausible a character beyond ASCII is among its neighbours, from -1 to 1."""
    if not char.isalpha():
        return 0.3 if char in PUNCTUATION else -1.0
    before, after = text[place - 1 : place], text[place + 1 : place + 2]
    if char.isupper() and before.islower():
        return -1.0
    name = unicodedata.name(char, "")
    beside_ascii = (before.isascii() and before.isalpha()) or (after.isascii() and after.isalpha())
    if "LATIN" in name:
        alone = not before.isalpha() and not after.isalpha()
        return 1.0 if beside_ascii else 0.2 if alone else -0.5
    if beside_ascii:
        return -1.0
    # Several scripts fit where bytes say nothing of case: frequent letters of Russian speak for it, others against.
    return 0.7 if "CYRILLIC" not in name else 1.0 if char.lower() in FREQUENT else 0.2
