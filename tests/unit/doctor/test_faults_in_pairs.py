"""Faults injected at random into clean pairs of several languages are found with their lines, and nothing else is."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.doctor import corpora, faults

from regard.doctor.examination import examine
from regard.doctor.finding import Severity
from regard.doctor.split_reader import Split

SCRIPTS = {"en": "Latin", "de": "Latin", "fr": "Latin", "ru": "Cyrillic", "el": "Greek"}
COUNT, VALID = 120, 30


def make_pairs(languages, seed, side, count=COUNT):
    scripts = {SCRIPTS[language] for language in languages}
    third = next(language for language in ("ru", "el", "en") if SCRIPTS[language] not in scripts)
    *sides, other = corpora.sentences([*languages, third], count + VALID, seed)
    return faults.CorruptedPairs(
        languages=languages,
        sides=[lines[:count] for lines in sides],
        other=[lines[count:] for lines in sides],
        third=other[:count],
        side=side,
    )


def examined(folder, pairs):
    files = faults.write(folder, pairs)
    splits = {Split(split): paths for split, paths in files.items()}
    return faults.findings_by_file(examine("translate", splits, max_lines=10_000, **pairs.options), files)


PLACES = st.sets(st.integers(0, COUNT - 1), min_size=1, max_size=8).map(sorted)


@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.__name__)
@settings(max_examples=4, **corpora.QUICK)
@given(
    languages=st.sampled_from(corpora.pairs_of_languages()),
    seed=st.integers(0, 2**32 - 1),
    places=PLACES,
    side=st.integers(0, 1),
)
def test_a_fault_is_found_at_its_lines_and_nothing_else(tmp_path_factory, fault, languages, seed, places, side):
    pairs = make_pairs(languages, seed, side)
    fault(pairs, places)
    found = examined(tmp_path_factory.mktemp("pairs"), pairs)
    for key, lines in pairs.expected.items():
        assert found.pop(key, None) == lines, (key, found)
    assert {kind for kind, *_ in found} <= pairs.side_effects, found


@settings(max_examples=8, **corpora.QUICK)
@given(
    seed=st.integers(0, 2**32 - 1),
    side=st.integers(0, 1),
    places=st.sets(st.integers(0, COUNT - 1), min_size=1, max_size=5),
)
def test_lines_that_are_missing_on_one_side(tmp_path_factory, seed, side, places):
    pairs = make_pairs(("en", "de"), seed, side)
    for place in sorted(places, reverse=True):
        del pairs.lines[place]
    found = examined(tmp_path_factory.mktemp("pairs"), pairs)
    (line,) = found.pop(("line-counts", "train", 0))
    assert abs(line - (min(places) + 1)) <= 12
    assert not found


@settings(max_examples=6, **corpora.QUICK)
@given(seed=st.integers(0, 2**32 - 1), side=st.integers(0, 1), begin=st.integers(0, 200), length=st.integers(130, 200))
def test_lines_that_shift_and_shift_back(tmp_path_factory, seed, side, begin, length):
    pairs = make_pairs(("de", "fr"), seed, side, 400)
    lost = pairs.lines.pop(begin)
    pairs.lines.insert(begin + length, f"{lost[:-1]} {lost}")
    found = examined(tmp_path_factory.mktemp("pairs"), pairs)
    (line,) = found.pop(("misaligned", "train", 0))
    assert abs(line - (begin + 1)) <= 12
    assert set(found) <= {("duplicate", "train", 0)}


@settings(max_examples=8, **corpora.QUICK)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_faults_of_several_kinds_at_once(tmp_path_factory, data, seed):
    line_by_line = [fault for fault in faults.FAULTS if fault.__name__ in MIXABLE]
    chosen = data.draw(st.lists(st.sampled_from(line_by_line), min_size=2, max_size=5, unique=True))
    places = data.draw(st.permutations(range(COUNT)))
    pairs = make_pairs(("en", "de"), seed, data.draw(st.integers(0, 1)))
    for number, fault in enumerate(chosen):
        fault(pairs, sorted(places[4 * number : 4 * number + 4]))
    found = examined(tmp_path_factory.mktemp("pairs"), pairs)
    for key, lines in pairs.expected.items():
        assert found.pop(key, None) == lines, (key, found)
    assert {kind for kind, *_ in found} <= pairs.side_effects, found


MIXABLE = {"control-character", "nul", "zero-width", "replacement-character", "markup", "lone-return", "empty_side"}
MIXABLE |= {"wrong_encoding", "empty_line", "identical_sides", "length_ratio", "unexpected_script", "swapped_sides"}


@pytest.mark.parametrize(("language", "encoding"), [
    ("de", "cp1252"), ("fr", "cp1252"), ("ru", "cp1251"), ("ru", "koi8-r"), ("el", "cp1253"),
])  # fmt: skip
def test_the_probable_encoding_of_a_whole_file(tmp_path, language, encoding):
    (texts,) = corpora.sentences([language], 60, 9)
    path = corpora.write(tmp_path / "a.txt", [text.encode(encoding) for text in texts])
    (found,) = examine("generate", {Split.TRAIN: [path]}).of_kind("wrong-encoding")
    assert f"probably in {encoding}" in found.message
    assert f"iconv -f {encoding}" in found.remedy
    assert found.severity is Severity.STOP


@pytest.mark.parametrize(("text", "encoding"), [
    ("昨日は友達と一緒に公園へ行きました。とても楽しかったです。", "shift_jis"),
    ("昨日は友達と一緒に公園へ行きました。とても楽しかったです。", "euc_jp"),
    ("昨天我和朋友一起去了公园,我们都很高兴,天气也非常好。", "gb18030"),
    ("昨天我和朋友一起去了公園,我們都很高興,天氣也非常好。", "big5"),
    ("어제 친구와 함께 공원에 갔습니다. 날씨가 아주 좋았습니다.", "euc_kr"),
    ("Wczoraj poszedłem z przyjaciółmi do parku, było bardzo wesoło i ciepło.", "cp1250"),
    ("אתמול הלכתי עם חבר לגן והיה לנו נעים מאוד", "cp1255"),
])  # fmt: skip
def test_the_probable_encoding_of_other_scripts(tmp_path, text, encoding):
    path = corpora.write(tmp_path / "a.txt", [text.encode(encoding)] * 3)
    (found,) = examine("generate", {Split.TRAIN: [path]}).of_kind("wrong-encoding")
    assert f"probably in {encoding}" in found.message


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_wide_encodings(tmp_path, encoding):
    path = tmp_path / "a.txt"
    path.write_bytes("A man sleeps.\nA dog runs.\n".encode(encoding))
    (found,) = examine("generate", {Split.TRAIN: [path]}).findings
    assert found.kind == "wrong-encoding"
    assert encoding.upper() in found.message


def test_a_broken_archive(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress("\n".join(corpora.sentences(["en"], 500, 1)[0]).encode())[:-200])
    (found,) = examine("generate", {Split.TRAIN: [path]}).findings
    assert found.kind == "broken-archive"


def test_the_scripts_that_were_asked_for(tmp_path):
    source, target = corpora.sentences(["en", "ru"], 30, 1)
    files = [corpora.write(tmp_path / "a.en", source), corpora.write(tmp_path / "a.ru", target)]
    report = examine(
        "translate", {Split.TRAIN: files}, scripts={"source": "Cyrillic", "target": "Cyrillic"}, max_lines=99
    )
    (found,) = report.findings
    assert (found.kind, found.file, found.lines) == ("unexpected-script", str(files[0]), tuple(range(1, 31)))
    assert not report.ok


def test_a_file_that_is_given_twice_is_told_of_once(tmp_path):
    source, target = corpora.sentences(["en", "de"], 60, 1)
    source[3] = "A man\x07 sleeps near the house."
    files = [corpora.write(tmp_path / "a.en", source), corpora.write(tmp_path / "a.de", target)]
    report = examine("translate", {Split.TRAIN: files, Split.VALID: files}, max_lines=99)
    (found,) = report.of_kind("control-character")
    assert (found.lines, found.count) == ((4,), 1)
    (leak,) = report.of_kind("leakage")
    assert leak.lines == tuple(range(1, 61))
    assert not report.ok
