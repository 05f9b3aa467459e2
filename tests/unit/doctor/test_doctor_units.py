"""Unit tests of parts of the doctor."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.doctor import corpora

from regard.doctor.examination import examine, examine_quick
from regard.doctor.finding import FindingCollector, Severity, excerpt
from regard.doctor.finding_kinds import KINDS
from regard.doctor.line_alignment import find_divergence, find_misaligned_range
from regard.doctor.script_checks import script_of
from regard.doctor.split_reader import Split


@pytest.mark.parametrize(("letters", "script"), [
    ("aÉßłŒªＡ", "Latin"), ("жЁі", "Cyrillic"), ("αΩῥ", "Greek"), ("漢字々〇"[:3], "Han"), ("ひ", "Hiragana"),
    ("カーｶ", "Katakana"), ("한", "Hangul"), ("ع", "Arabic"), ("ש", "Hebrew"), ("न", "Devanagari"), ("ก", "Thai"),
])  # fmt: skip
def test_scripts(letters, script):
    assert {script_of(letter) for letter in letters} == {script}


def test_what_belongs_to_no_script():
    assert {script_of(char) for char in "1.,µ𝐀ℝ 😀…"} == {None}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), lost=st.integers(1, 3), noise=st.floats(0, 0.15))
def test_where_two_sides_part(seed, lost, noise):
    """With correlated lengths and noise the position is found within a few lines."""
    random_ = random.Random(seed)
    source = [random_.randint(10, 200) for _ in range(400)]
    target = [round(length * 1.2 * random_.lognormvariate(0, noise)) for length in source]
    place = random_.randrange(300)
    assert abs(find_divergence(source, target[:place] + target[place + lost :]) - (place + 1)) <= 15
    assert find_misaligned_range(source, target) is None


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), same=st.booleans())
def test_lengths_that_say_nothing_make_no_misalignment(seed, same):
    random_ = random.Random(seed)
    source = [10 if same else random_.randint(10, 200) for _ in range(1000)]
    target = [random_.randint(10, 200) for _ in range(1000)]
    assert find_misaligned_range(source, target) is None


def test_clip_shows_what_cannot_be_seen():
    assert excerpt("a\x07b\u200bc\ud800", 0) == "a\\x07b\\u200bc\\ud800"
    assert excerpt("x" * 100 + "here" + "y" * 100, 100).startswith("…x")
    assert "here" in excerpt("x" * 100 + "here" + "y" * 100, 100)


def test_severity_grows_with_the_share():
    kind = KINDS["identical-sides"]
    assert [kind.severity_at(share) for share in (0.001, 0.01, 0.5)] == [Severity.NOTE, Severity.WARN, Severity.STOP]


def test_only_the_first_lines_are_kept_and_all_are_counted():
    collector = FindingCollector(max_lines=2)
    for line in (3, 3, 5, 9):
        collector.add_line(KINDS["nul"], "a", line, "text")
    (found,) = collector.findings({"a": 10})
    assert (found.lines, found.count, found.message) == ((3, 5), 3, "3 lines with NUL bytes")


def test_the_quick_part_stops_what_training_would_trip_over(tmp_path):
    source, target = corpora.sentences(["en", "de"], 60, 1)
    target[5] = "schön".encode("cp1252")
    files = {Split.TRAIN: [corpora.write(tmp_path / "a", source), corpora.write(tmp_path / "b", target[:-1])]}
    report = examine_quick("translate", files)
    assert {finding.kind for finding in report.findings} == {"wrong-encoding", "line-counts"}
    assert not report.ok


def test_compressed_files_have_the_same_findings(tmp_path):
    import gzip
    import lzma

    import zstandard

    (texts,) = corpora.sentences(["en"], 60, 1)
    texts[7] += "\x07"
    content = "\n".join([*texts, ""]).encode()
    packers = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}
    for ending, pack in packers.items():
        path = tmp_path / f"a.txt{ending}"
        path.write_bytes(pack(content))
        (found,) = examine("generate", {Split.TRAIN: [path]}).findings
        assert (found.kind, found.lines) == ("control-character", (8,))


def test_a_task_that_does_not_exist(tmp_path):
    with pytest.raises(ValueError, match="unknown task 'sing'; the tasks are translate"):
        examine("sing", {Split.TRAIN: [tmp_path]})
