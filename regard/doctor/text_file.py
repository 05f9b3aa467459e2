"""Tolerant reading of text files in blocks of lines: problems with the bytes become findings."""

from __future__ import annotations

import enum
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from regard.data.line_blocks import BYTE_ORDER_MARK, LineBlock, decode_lines, read_raw_blocks
from regard.doctor import finding_kinds
from regard.doctor.character_checks import check_characters
from regard.doctor.charset import detect_charset, detect_utf16_or_32
from regard.doctor.finding import FindingCollector
from regard.doctor.line_endings import LineEndingCheck
from regard.tokenization.text_files import DataError, read_raw_lines

SAMPLE_LINES = 200


class Escaping(enum.Enum):
    """How texts are escaped in a file."""

    NONE = "none"
    JSON = "json"
    """JSON: characters are checked after parsing."""


class TextFile:
    """A file that is read once, in blocks. Afterwards it has the number and lengths of the lines."""

    def __init__(self, path: Path, collector: FindingCollector, escaping: Escaping = Escaping.NONE) -> None:
        self.path, self.collector, self.escaping = path, collector, escaping
        self.num_lines = 0
        self.line_lengths = array("i")
        """Number of characters of each line."""
        self.complete = True
        """Whether the file could be read to its end."""
        self._encodings: Counter[str] = Counter()

    def blocks(self, on_bytes_read: Callable[[int], None]) -> Iterator[LineBlock]:
        """Yield the lines in blocks. `on_bytes_read` is called with the number of bytes of each block."""
        line_endings = LineEndingCheck(self.path, self.collector)
        try:
            if encoding := _detect_utf16_or_32(self.path):
                message = f"the file is in {encoding.upper()}, not in UTF-8"
                self.collector.add_file(
                    finding_kinds.WRONG_ENCODING, self.path, message, lines=[1], remedy=self._iconv_command(encoding)
                )
                self.complete = False
                return
            for raw_lines in read_raw_blocks(self.path):
                line_endings.update(self.num_lines + 1, raw_lines)
                texts = self._read(raw_lines)
                yield LineBlock(self.num_lines - len(texts) + 1, texts)
                on_bytes_read(sum(map(len, raw_lines)))
        except DataError as error:
            self.collector.add_file(finding_kinds.BROKEN_ARCHIVE, self.path, error.message, lines=[error.line or 1])
            self.complete = False
            return
        self._finish(line_endings)

    def _read(self, raw_lines: list[bytes]) -> list[str]:
        first = self.num_lines + 1
        if first == 1 and raw_lines[0].startswith(BYTE_ORDER_MARK):
            self.collector.add_file(finding_kinds.MARK, self.path, finding_kinds.MARK.message, lines=[1])
            raw_lines[0] = raw_lines[0].removeprefix(BYTE_ORDER_MARK)
        texts = self._decode(first, raw_lines)
        if self.escaping is Escaping.NONE:
            check_characters(self.path, range(first, first + len(texts)), texts, self.collector)
        self.num_lines += len(texts)
        self.line_lengths.extend(map(len, texts))
        return texts

    def _decode(self, first: int, raw_lines: Sequence[bytes]) -> list[str]:
        """Decode lines. Those that are not valid UTF-8 are decoded with the detected encoding."""
        try:
            return decode_lines(raw_lines)
        except UnicodeDecodeError:
            return self._decode_other_charset(first, raw_lines)

    def _decode_other_charset(self, first: int, raw_lines: Sequence[bytes]) -> list[str]:
        texts = [_decode_utf8(line) for line in raw_lines]
        invalid = [line for line, text in zip(raw_lines, texts, strict=True) if text is None]
        encoding = detect_charset(b"".join(invalid[:SAMPLE_LINES]))
        self._encodings[encoding] += len(invalid)
        decoded = []
        for number, (line, text) in enumerate(zip(raw_lines, texts, strict=True), first):
            decoded.append(_strip_line_ending(line.decode(encoding, errors="replace")) if text is None else text)
            if text is None:
                self.collector.add_line(finding_kinds.WRONG_ENCODING, self.path, number, decoded[-1])
        return decoded

    def _finish(self, line_endings: LineEndingCheck) -> None:
        if self.num_lines == 0:
            self.collector.add_file(finding_kinds.EMPTY_FILE, self.path, finding_kinds.EMPTY_FILE.message)
            return
        line_endings.finish()
        if self._encodings:
            encoding = self._encodings.most_common(1)[0][0]
            message = f"{{lines}} not in UTF-8 but probably in {encoding}"
            remedy = self._iconv_command(encoding)
            if self._encodings.total() < self.num_lines / 2:
                remedy = f"if other lines contain non-ASCII UTF-8, convert only these lines; otherwise {remedy}"
            self.collector.set_message(finding_kinds.WRONG_ENCODING, self.path, message, remedy)

    def _iconv_command(self, encoding: str) -> str:
        return f"convert the file: iconv -f {encoding} -t utf-8 {self.path.name}"


def _decode_utf8(line: bytes) -> str | None:
    try:
        return _strip_line_ending(line.decode())
    except UnicodeDecodeError:
        return None


def _strip_line_ending(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _detect_utf16_or_32(path: Path) -> str | None:
    _, line = next(read_raw_lines(path), (1, b""))
    return detect_utf16_or_32(line[:1024])
