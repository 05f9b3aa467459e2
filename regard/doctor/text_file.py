"""A file of text in blocks of lines, read whatever is wrong with it; what is wrong with its bytes is noted."""

from __future__ import annotations

import enum
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.doctor import finding_kinds
from regard.doctor.character_checks import look
from regard.doctor.charset import probable, wide
from regard.doctor.finding import Ledger
from regard.doctor.line_endings import LineEnds
from regard.tokenization.text_files import DataError, raw_lines

BLOCK_BYTES, BLOCK_LINES = 1 << 20, 1 << 14
SAMPLE_LINES = 200


class Written(enum.Enum):
    """How text stands in a file."""

    PLAINLY = "plainly"
    ESCAPED = "escaped"
    """As in JSON, whose characters can only be looked at when it has been parsed."""


@dataclass
class Block:
    """Some lines of a file, without their ends; the first has this number."""

    first: int
    texts: list[str]


class TextFile:
    """A file that is read once, block by block. Afterwards, what is known of its lines stands here."""

    def __init__(self, path: Path, ledger: Ledger, form: Written = Written.PLAINLY) -> None:
        self.path, self.ledger, self.form = path, ledger, form
        self.lines = 0
        self.lengths = array("i")
        """Characters in each line."""
        self.whole = True
        """Whether it could be read to its end."""
        self._encodings: Counter[str] = Counter()

    def blocks(self, tell: Callable[[int], None]) -> Iterator[Block]:
        """The lines. `tell` is told how many bytes were read."""
        ends = LineEnds(self.path, self.ledger)
        try:
            if encoding := _wide(self.path):
                said = f"the file is in {encoding.upper()}, not in UTF-8"
                self.ledger.say(
                    finding_kinds.WRONG_ENCODING, self.path, said, lines=[1], remedy=self._convert(encoding)
                )
                self.whole = False
                return
            for raw in _raw_blocks(self.path):
                ends.see(self.lines + 1, raw)
                texts = self._read(raw)
                yield Block(self.lines - len(texts) + 1, texts)
                tell(sum(map(len, raw)))
        except DataError as error:
            self.ledger.say(finding_kinds.BROKEN_ARCHIVE, self.path, error.said, lines=[error.line or 1])
            self.whole = False
            return
        self._finish(ends)

    def _read(self, raw: list[bytes]) -> list[str]:
        first = self.lines + 1
        if first == 1 and raw[0].startswith(b"\xef\xbb\xbf"):
            self.ledger.say(finding_kinds.MARK, self.path, finding_kinds.MARK.said, lines=[1])
            raw[0] = raw[0][3:]
        texts = self._decode(first, raw)
        if self.form is Written.PLAINLY:
            look(self.path, range(first, first + len(texts)), texts, self.ledger)
        self.lines += len(texts)
        self.lengths.extend(map(len, texts))
        return texts

    def _decode(self, first: int, raw: Sequence[bytes]) -> list[str]:
        """The lines as text. Those that are no UTF-8 are read in the encoding that they are probably in."""
        try:
            block = b"".join(raw).decode()
        except UnicodeDecodeError:
            return self._rescue(first, raw)
        texts = block.split("\n")
        if len(texts) > len(raw):
            texts.pop()  # what stands behind the last end
        return [text.removesuffix("\r") for text in texts] if "\r" in block else texts

    def _rescue(self, first: int, raw: Sequence[bytes]) -> list[str]:
        texts = [_utf8(line) for line in raw]
        wrong = [line for line, text in zip(raw, texts, strict=True) if text is None]
        encoding = probable(b"".join(wrong[:SAMPLE_LINES]))
        self._encodings[encoding] += len(wrong)
        saved = []
        for number, (line, text) in enumerate(zip(raw, texts, strict=True), first):
            saved.append(_plain(line.decode(encoding, errors="replace")) if text is None else text)
            if text is None:
                self.ledger.note(finding_kinds.WRONG_ENCODING, self.path, number, saved[-1])
        return saved

    def _finish(self, ends: LineEnds) -> None:
        if self.lines == 0:
            self.ledger.say(finding_kinds.EMPTY_FILE, self.path, finding_kinds.EMPTY_FILE.said)
            return
        ends.finish()
        if self._encodings:
            encoding = self._encodings.most_common(1)[0][0]
            wrong = self._encodings.total()
            said = f"{{lines}} not in UTF-8 but probably in {encoding}"
            remedy = self._convert(encoding)
            if wrong < self.lines / 2:
                remedy = f"if the others hold UTF-8 beyond ASCII, convert these lines alone; otherwise {remedy}"
            self.ledger.explain(finding_kinds.WRONG_ENCODING, self.path, said, remedy)

    def _convert(self, encoding: str) -> str:
        return f"convert it: iconv -f {encoding} -t utf-8 {self.path.name}"


def _utf8(line: bytes) -> str | None:
    try:
        return _plain(line.decode())
    except UnicodeDecodeError:
        return None


def _plain(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _raw_blocks(path: Path) -> Iterator[list[bytes]]:
    block: list[bytes] = []
    size = 0
    for _, line in raw_lines(path):
        block.append(line)
        size += len(line)
        if size >= BLOCK_BYTES or len(block) >= BLOCK_LINES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _wide(path: Path) -> str | None:
    _, line = next(raw_lines(path), (1, b""))
    return wide(line[:1024])
