"""Lines of text files, compressed or not, and the errors of invalid files."""

import gzip
import lzma
import os

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.cli.until_error import UntilError
from regard.data.line_blocks import read_raw_blocks
from regard.tokenization import text_files
from regard.tokenization.text_files import DataError, format_suffix, open_decompressed, read_lines, read_raw_lines

TEXT = "first line\nzweite Zeile äöü\n\nпоследняя\n"
COMPRESS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}


def write(folder, content, ending=""):
    path = folder / f"file.txt{ending}"
    path.write_bytes(COMPRESS[ending](content))
    return path


@pytest.mark.parametrize("ending", COMPRESS)
def test_every_compression_gives_the_same_lines(tmp_path, ending):
    expected = [(i + 1, line) for i, line in enumerate(TEXT.split("\n")[:-1])]
    assert list(read_lines(write(tmp_path, TEXT.encode(), ending))) == expected


@given(
    text=st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"])),
    end=st.sampled_from(["\n", "\r\n"]),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_lines_are_what_was_written_whatever_ends_them(tmp_path_factory, text, end):
    path = tmp_path_factory.mktemp("lines") / "file"
    path.write_bytes(f"{text}{end}{text}".encode())
    expected = [text, text] if text else [""]
    found = [line for _, line in read_lines(path)]
    assert found == ([text.removeprefix("\ufeff"), text][: len(expected)] if text else [""])


def test_only_the_end_of_a_line_is_taken_off(tmp_path):
    assert list(read_lines(write(tmp_path, b"a\r\r\nb \n\x85c\x0c\n".replace(b"\x85", "\x85".encode())))) == [
        (1, "a\r"),
        (2, "b "),
        (3, "\x85c\x0c"),
    ]


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
def test_archives_one_after_the_other_are_one_text(tmp_path, ending):
    path = tmp_path / f"file{ending}"
    path.write_bytes(COMPRESS[ending](b"one\n") + COMPRESS[ending](b"two\n"))
    assert list(read_lines(path)) == [(1, "one"), (2, "two")]


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("fraction", [0.3, 0.6, 0.95])
def test_an_archive_that_was_cut_is_an_error_and_never_a_shorter_text(tmp_path, ending, fraction):
    content = "".join(f"line {i * 7919 % 10007}\n" for i in range(20000)).encode()
    path = tmp_path / f"file.txt{ending}"
    compressed = COMPRESS[ending](content)
    path.write_bytes(compressed[: int(len(compressed) * fraction)])
    with pytest.raises(DataError, match="cannot decompress"):
        list(read_raw_lines(path))
    with pytest.raises(DataError, match="cannot decompress"), open_decompressed(path) as stream:
        stream.read()


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
def test_what_is_no_archive_at_all(tmp_path, ending):
    path = tmp_path / f"file{ending}"
    path.write_bytes(b"plain text, named as if it were packed\n")
    with pytest.raises(DataError, match="cannot decompress"):
        list(read_lines(path))


def test_wrong_encoding_says_file_line_byte_and_what_to_do(tmp_path):
    path = write(tmp_path, b"fine\ncaf\xe9\n")
    with pytest.raises(
        DataError, match=r"file\.txt, line 2: byte 4 of the line \(b'\\xe9'\) is not valid UTF-8.*iconv"
    ):
        list(read_lines(path))


def test_a_byte_order_mark_is_no_text(tmp_path):
    assert list(read_lines(write(tmp_path, b"\xef\xbb\xbfword\n"))) == [(1, "word")]


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(DataError, match="file not found"):
        list(read_lines(tmp_path / "nothing.txt"))
    with pytest.raises(DataError, match="is a directory; expected a file"):
        list(read_lines(tmp_path))


def test_the_ending_that_tells_the_format():
    assert [format_suffix(name) for name in ("a.tsv", "a.TSV.gz", "a.b.jsonl.zst", "a", "a.gz")] == [
        ".tsv", ".tsv", ".jsonl", "", "",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["pipe", "device", "loop"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, kind, ending):
    path = tmp_path / f"file.txt{ending}"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "loop":
            path.symlink_to(path.name)
    with pytest.raises(DataError, match=r"is a pipe, socket or device; expected a regular file|symbolic links"):
        next(read_lines(path))


@pytest.mark.parametrize("ending", COMPRESS)
@pytest.mark.parametrize("read", [read_raw_lines, read_raw_blocks])
def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path, monkeypatch, ending, read):
    monkeypatch.setattr(text_files, "MAX_LINE_BYTES", 1000)
    path = write(tmp_path, b"a\n" + 999 * b"x" + b"\n" + 5000 * b"x" + b"\nb\n", ending)
    found = UntilError(read(path))
    lines = [line for item in found for line in ([item[1]] if read is read_raw_lines else item)]
    assert [len(line) for line in lines] == [2, 1000]
    with pytest.raises(DataError, match=r"line 3: the line has more than 1,000 bytes: not a text file"):
        found.raise_error()
