"""Detection of the character encoding of bytes that are not valid UTF-8."""

from __future__ import annotations

import itertools
import unicodedata

SINGLE_BYTE_CHARSETS = ("cp1252", "cp1251", "koi8-r", "cp1255", "cp1253", "cp1250", "cp1256")
"""On equal scores the first wins: Hebrew bytes can decode as plausible Greek, but hardly Greek bytes as Hebrew."""
MULTIBYTE_CHARSETS = {"shift_jis": (0x81, 0x98), "euc_jp": (0xA1, 0xCF), "euc_kr": (0xA1, 0xC8)}
MULTIBYTE_CHARSETS |= {"gb18030": (0xA1, 0xD7), "big5": (0xA1, 0xC6)}
"""East Asian encodings, with the range of lead bytes of their common characters."""
FREQUENT_RUSSIAN_LETTERS = "оеаинтсрвлкм"
PUNCTUATION = "\u00a0‘’‚“”„«»…–—•§°€£©®™´·¿¡№"


def detect_charset(sample: bytes) -> str:
    """Return the encoding in which a sample looks most like words. The sample is not valid UTF-8.

    In the right encoding the non-ASCII characters are letters of one script, in words of that script, with capitals
    only at the start of words. In a wrong encoding they are symbols, isolated accents, and capitals inside words.
    """
    scores = {name: _score(sample, name) for name in (*SINGLE_BYTE_CHARSETS, *MULTIBYTE_CHARSETS)}
    return max(scores, key=lambda name: scores[name])


def detect_utf16_or_32(head: bytes) -> str | None:
    """Detect UTF-16 and UTF-32 by the first bytes of a file: a byte order mark, or every second byte is 0."""
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
    if name in MULTIBYTE_CHARSETS:
        return _score_multibyte(text, name)
    values = [_plausibility(text, index, char) for index, char in enumerate(text) if ord(char) > 127]
    return sum(values) / max(len(values), 1)


def _score_multibyte(text: str, name: str) -> float:
    low, high = MULTIBYTE_CHARSETS[name]
    non_ascii = [char for char in text if ord(char) > 127]
    common = sum(low <= char.encode(name)[0] <= high and unicodedata.category(char)[0] != "C" for char in non_ascii)
    # Other encodings decode to half-width kana in Shift JIS. Real texts do not consist of it.
    penalized = sum("\uff61" <= char <= "\uff9f" for char in non_ascii)
    # Japanese text mixes kana with Chinese characters.
    kana = sum("\u3040" <= char <= "\u30ff" for char in non_ascii)
    penalized += len(non_ascii) if name in ("shift_jis", "euc_jp") and kana < 0.1 * len(non_ascii) else 0
    # Isolated accented letters can decode to a few East Asian characters, so adjacent ones are required.
    adjacent = sum(ord(a) > 127 and ord(b) > 127 for a, b in itertools.pairwise(text))
    return (common - 2 * penalized) / max(len(non_ascii), 1) - 0.5 + min(0.5, adjacent / max(len(non_ascii), 1))


def _plausibility(text: str, index: int, char: str) -> float:
    """Plausibility of a non-ASCII character between its neighbors, from -1 to 1."""
    if not char.isalpha():
        return 0.3 if char in PUNCTUATION else -1.0
    before, after = text[index - 1 : index], text[index + 1 : index + 2]
    if char.isupper() and before.islower():
        return -1.0
    name = unicodedata.name(char, "")
    next_to_ascii = (before.isascii() and before.isalpha()) or (after.isascii() and after.isalpha())
    if "LATIN" in name:
        isolated = not before.isalpha() and not after.isalpha()
        return 1.0 if next_to_ascii else 0.2 if isolated else -0.5
    if next_to_ascii:
        return -1.0
    # Bytes of uncased text fit several scripts: frequent Russian letters are evidence for Cyrillic, others against it.
    return 0.7 if "CYRILLIC" not in name else 1.0 if char.lower() in FREQUENT_RUSSIAN_LETTERS else 0.2
