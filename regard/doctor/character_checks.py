"""Characters that should not be in text: those that nobody sees, and traces of a wrong conversion."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

from regard.doctor import finding_kinds
from regard.doctor.finding import Kind, Ledger

CONTINUED = "[\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
"""What the bytes 0x80 to 0xBF, which continue a character in UTF-8, become in cp1252 and Latin-1."""
CLOSING = "[”’…»–—\xa0]"
LEADS = "[ÐÑÎÏØÙÄÅ×]"
"""What the first bytes of Cyrillic, Greek, Arabic, Hebrew and the rest of Latin become."""
MOJIBAKE = re.compile(
    "[ÃÂâðÐÑÎÏØÙÄÅ×](?:"
    # Ã or Â before such a character; but a word in capitals may end in Ã before a mark, as in Portuguese
    f"(?<=[ÃÂ])(?!{CLOSING}){CONTINUED}|(?<=[ÃÂ])(?<![A-ZÀ-Þ][ÃÂ]){CONTINUED}"
    # â before two of them is punctuation, ð before three an emoji; letters of other scripts come two in a row
    f"|(?<=â){CONTINUED}{{2}}|(?<=ð){CONTINUED}{{3}}|(?<={LEADS}){CONTINUED}{LEADS}{CONTINUED})"
)
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
TAGS = "br|p|b|i|u|a|em|strong|div|span|font|img|table|tr|td|th|ul|ol|li|h[1-6]|sub|sup|html|body|script|style"
NAMES = "amp|lt|gt|quot|apos|nbsp|copy|reg|hellip|[mn]dash|[lr][sd]quo|[lr]aquo|szlig"
NAMES += "|[a-z](?:uml|acute|grave|circ|tilde|cedil)"
MARKUP = re.compile(
    f"[&<](?:(?<=&)(?:{NAMES}|#[0-9]{{1,6}}|#x[0-9a-fA-F]{{1,5}});|(?<=<)/?(?:{TAGS})(?: [^<>]*)?/?>)", re.IGNORECASE
)
UNSEEN = re.compile(
    "[\x80-\x9f\u00ad\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060\u2066-\u2069\ue000-\uf8ff\ufeff\ufffd]"
)
# Joiners belong to Persian, Indian scripts and emoji; beside Latin letters, spaces or nothing they are litter.
JOINER = re.compile("[\u200c\u200d](?:(?=[\\s\x21-\u024f]|\\Z)|(?<=[\\s\x21-\u024f].)|(?<=\\A.))")


def _control(found: str) -> Kind:
    return finding_kinds.NUL if found == "\0" else finding_kinds.CONTROL


def _unseen(found: str) -> Kind:
    match found:
        case "\u2028" | "\u2029" | "\x85":
            return finding_kinds.OTHER_LINE_END
        case "\ufffd":
            return finding_kinds.REPLACEMENT
        case "\u00ad" | "\u200b" | "\u2060" | "\ufeff":
            return finding_kinds.ZERO_WIDTH
        case "\u200e" | "\u200f":
            return finding_kinds.DIRECTION
        case _ if "\u202a" <= found <= "\u2069":
            return finding_kinds.DIRECTION
        case _ if "\ue000" <= found <= "\uf8ff":
            return finding_kinds.PRIVATE
        case _:
            return finding_kinds.CONTROL


PATTERNS: list[tuple[frozenset[str], re.Pattern[str], Callable[[str], Kind]]] = [
    (frozenset(map(chr, [*range(32), 0x7F])) - {"\t", "\n", "\r"}, CONTROL, _control),
    (frozenset("&<"), MARKUP, lambda _: finding_kinds.MARKUP),
    (frozenset(filter(UNSEEN.match, map(chr, range(0x10000)))), UNSEEN, _unseen),
    (frozenset("\u200c\u200d"), JOINER, lambda _: finding_kinds.ZERO_WIDTH),
    (frozenset("ÃÂâðÐÑÎÏØÙÄÅ×"), MOJIBAKE, lambda _: finding_kinds.MOJIBAKE),
]
"""The characters that a fault begins with, how it is found, and which it is."""


def look(path: Path, lines: Sequence[int], texts: Sequence[str], ledger: Ledger) -> None:
    """Note the lines whose text has such characters. A fault is looked for only where it can be."""
    block = "\n".join(texts)
    present = set(block)
    found = sorted(
        (match.start(), kind_of(match.group()).name)
        for leads, pattern, kind_of in PATTERNS
        if not leads.isdisjoint(present)
        for match in pattern.finditer(block)
    )
    starts = list(accumulate((len(text) + 1 for text in texts), initial=0)) if found else []
    for at, name in found:
        place = bisect_right(starts, at) - 1
        ledger.note(finding_kinds.KINDS[name], path, lines[place], texts[place], at - starts[place])
