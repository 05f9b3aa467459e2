"""Checks for characters that do not belong in text: invisible ones, and traces of a wrong conversion."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

from regard.doctor import finding_kinds
from regard.doctor.finding import FindingCollector, FindingKind

CONTINUATION_CHARACTERS = "[\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
"""The UTF-8 continuation bytes 0x80 to 0xBF, decoded as cp1252 or Latin-1."""
CLOSING_PUNCTUATION = "[”’…»–—\xa0]"
LEAD_CHARACTERS = "[ÐÑÎÏØÙÄÅ×]"
"""The UTF-8 lead bytes of Cyrillic, Greek, Arabic, Hebrew and extended Latin, decoded the same way."""
MOJIBAKE = re.compile(
    "[ÃÂâðÐÑÎÏØÙÄÅ×](?:"
    # Ã or Â before a continuation character. A Portuguese word in capitals may end in Ã before punctuation.
    f"(?<=[ÃÂ])(?!{CLOSING_PUNCTUATION}){CONTINUATION_CHARACTERS}|(?<=[ÃÂ])(?<![A-ZÀ-Þ][ÃÂ]){CONTINUATION_CHARACTERS}"
    # â before two of them was punctuation, ð before three an emoji. Letters of other scripts need two in a row.
    f"|(?<=â){CONTINUATION_CHARACTERS}{{2}}|(?<=ð){CONTINUATION_CHARACTERS}{{3}}"
    f"|(?<={LEAD_CHARACTERS}){CONTINUATION_CHARACTERS}{LEAD_CHARACTERS}{CONTINUATION_CHARACTERS})"
)
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
HTML_TAGS = "br|p|b|i|u|a|em|strong|div|span|font|img|table|tr|td|th|ul|ol|li|h[1-6]|sub|sup|html|body|script|style"
HTML_ENTITIES = "amp|lt|gt|quot|apos|nbsp|copy|reg|hellip|[mn]dash|[lr][sd]quo|[lr]aquo|szlig"
HTML_ENTITIES += "|[a-z](?:uml|acute|grave|circ|tilde|cedil)"
MARKUP = re.compile(
    f"[&<](?:(?<=&)(?:{HTML_ENTITIES}|#[0-9]{{1,6}}|#x[0-9a-fA-F]{{1,5}});|(?<=<)/?(?:{HTML_TAGS})(?: [^<>]*)?/?>)",
    re.IGNORECASE,
)
INVISIBLE = re.compile(
    "[\x80-\x9f\u00ad\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060\u2066-\u2069\ue000-\uf8ff\ufeff\ufffd]"
)
# Joiners belong to Persian, Indic scripts and emoji. Next to Latin letters, spaces or a line end they are errors.
JOINER = re.compile("[\u200c\u200d](?:(?=[\\s\x21-\u024f]|\\Z)|(?<=[\\s\x21-\u024f].)|(?<=\\A.))")


def _control_kind(char: str) -> FindingKind:
    return finding_kinds.NUL if char == "\0" else finding_kinds.CONTROL


def _invisible_kind(char: str) -> FindingKind:
    match char:
        case "\u2028" | "\u2029" | "\x85":
            return finding_kinds.OTHER_LINE_END
        case "\ufffd":
            return finding_kinds.REPLACEMENT
        case "\u00ad" | "\u200b" | "\u2060" | "\ufeff":
            return finding_kinds.ZERO_WIDTH
        case "\u200e" | "\u200f":
            return finding_kinds.DIRECTION
        case _ if "\u202a" <= char <= "\u2069":
            return finding_kinds.DIRECTION
        case _ if "\ue000" <= char <= "\uf8ff":
            return finding_kinds.PRIVATE
        case _:
            return finding_kinds.CONTROL


PATTERNS: list[tuple[frozenset[str], re.Pattern[str], Callable[[str], FindingKind]]] = [
    (frozenset(map(chr, [*range(32), 0x7F])) - {"\t", "\n", "\r"}, CONTROL, _control_kind),
    (frozenset("&<"), MARKUP, lambda _: finding_kinds.MARKUP),
    (frozenset(filter(INVISIBLE.match, map(chr, range(0x10000)))), INVISIBLE, _invisible_kind),
    (frozenset("\u200c\u200d"), JOINER, lambda _: finding_kinds.ZERO_WIDTH),
    (frozenset("ÃÂâðÐÑÎÏØÙÄÅ×"), MOJIBAKE, lambda _: finding_kinds.MOJIBAKE),
]
"""For each check: the first characters of a match, the pattern, and the kind of finding of a match."""


def check_characters(path: Path, lines: Sequence[int], texts: Sequence[str], collector: FindingCollector) -> None:
    """Add findings for lines with such characters. A pattern is searched only if one of its first characters occurs."""
    block = "\n".join(texts)
    present = set(block)
    matches = sorted(
        (match.start(), kind_of(match.group()).name)
        for leads, pattern, kind_of in PATTERNS
        if not leads.isdisjoint(present)
        for match in pattern.finditer(block)
    )
    starts = list(accumulate((len(text) + 1 for text in texts), initial=0)) if matches else []
    for position, name in matches:
        index = bisect_right(starts, position) - 1
        collector.add_line(finding_kinds.KINDS[name], path, lines[index], texts[index], position - starts[index])
