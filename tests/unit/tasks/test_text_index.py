"""An index of texts: the nearest ones by the definition, in files that are checked when they are opened."""

import json
import shutil

import numpy as np
import pytest
from unit.cli.runner import run
from unit.tasks.sentence_encoders import encoder_folder, matrix, write_modules

import regard
from regard.tasks.text_index import TextIndex, TextIndexError

TEXTS = [f"{a} {b} {c}" for a in ("one", "two", "nine") for b in ("horse", "beach", "sea") for c in ("rides", "falls")]
QUERY = "two horses at the sea"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_modules(encoder_folder(tmp_path_factory.mktemp("encoder") / "model"), ["Normalize"])


@pytest.fixture(scope="module", params=["float32", "int8"])
def index(request, folder, tmp_path_factory):
    place = tmp_path_factory.mktemp("index")
    (place / "texts.txt").write_text("\n".join(TEXTS))
    flags = ["--int8"] if request.param == "int8" else []
    called = run("embed", folder, place / "texts.txt", "--index", place / "index", *flags)
    assert called.code == 0, called.err
    assert f"{len(TEXTS)} texts" in called.err
    return place / "index"


def test_the_nearest_texts_are_those_of_the_definition(folder, index):
    model = regard.load(folder)
    vectors, query = matrix(model.embed(TEXTS)), np.array(model.embed(QUERY).vector)
    cosines = vectors @ query
    matches = TextIndex.open(index, model).search(QUERY, 5)
    tolerance = 0.02 if np.load(index / "vectors.npy").dtype == np.int8 else 1e-5
    best = np.sort(cosines)[::-1][:5]
    for match, expected in zip(matches, best, strict=True):
        assert match.text == TEXTS[match.index]
        assert match.score == pytest.approx(expected, abs=tolerance)
        assert match.score == pytest.approx(cosines[match.index], abs=tolerance)


def test_the_command_prints_texts_with_their_cosines(folder, index):
    called = run("search", index, QUERY, "-n", 3)
    assert called.code == 0
    rows = [line.split("\t") for line in called.lines]
    matches = TextIndex.open(index, regard.load(folder)).search(QUERY, 3)
    assert [text for _, text in rows] == [match.text for match in matches]
    assert [float(score) for score, _ in rows] == pytest.approx([match.score for match in matches], abs=1e-3)
    objects = [json.loads(line) for line in run("search", index, QUERY, "-n", 3, "--json").lines]
    assert [each["index"] for each in objects] == [match.index for match in matches]


def test_several_queries_are_numbered(index):
    called = run("search", index, "-", "-n", 2, given="one horse\nnine falls\n")
    assert [line.split("\t")[0] for line in called.lines] == ["0", "0", "1", "1"]


def test_another_model_is_refused(index, tmp_path):
    other = encoder_folder(tmp_path / "other", "roberta")
    with pytest.raises(TextIndexError, match="was made with another model"):
        run("search", index, QUERY, "--model", other)
    with pytest.raises(TextIndexError, match="was made with another model"):
        TextIndex.open(index, regard.load(other))


def test_a_model_that_moved_is_found_by_its_new_name(folder, index, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    moved = tmp_path / "index"
    shutil.copytree(index, moved)
    info = json.loads((moved / "index.json").read_text())
    info["model"]["folder"] = str(tmp_path / "gone")
    (moved / "index.json").write_text(json.dumps(info))
    with pytest.raises(TextIndexError, match="does not exist: name its folder with --model"):
        run("search", moved, QUERY)
    assert run("search", moved, QUERY, "--model", copy).lines == run("search", index, QUERY).lines


DAMAGES = {
    "no index": (lambda path: (path / "index.json").unlink(), "is no index"),
    "cut vectors": (lambda path: (path / "vectors.npy").write_bytes(b"\x93NUMPY"), "cannot be read"),
    "missing texts": (lambda path: (path / "texts.jsonl").write_text("a"), "do not fit each other"),
    "newer": (lambda path: (path / "index.json").write_text('{"format_version": 9}'), "make the index again"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_indexes_are_refused(folder, index, tmp_path, damage):
    copy = tmp_path / "index"
    shutil.copytree(index, copy)
    change, message = DAMAGES[damage]
    change(copy)
    with pytest.raises(TextIndexError, match=message):
        TextIndex.open(copy, regard.load(folder))


def test_an_index_replaces_an_index_but_no_other_folder(folder, index, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("dear")
    texts = tmp_path / "texts.txt"
    texts.write_text("one\ntwo\n")
    with pytest.raises(TextIndexError, match="is no index: choose another name"):
        run("embed", folder, texts, "--index", tmp_path / "mine")
    for _ in range(2):
        assert run("embed", folder, texts, "--index", tmp_path / "index").code == 0
    texts.write_text("")
    with pytest.raises(TextIndexError, match="there are no texts"):
        run("embed", folder, texts, "--index", tmp_path / "index")
    assert len(TextIndex.open(tmp_path / "index", regard.load(folder))) == 2  # the old one is still there


def test_vectors_in_files_equal_those_of_the_model(folder, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    expected = matrix(regard.load(folder, precision="float32").embed(TEXTS))
    run("embed", folder, tmp_path / "texts.txt", "-o", tmp_path / "vectors.npy")
    written = np.load(tmp_path / "vectors.npy")
    assert written.dtype == np.float32
    assert np.abs(written - expected).max() < 1e-5
    run("embed", folder, tmp_path / "texts.txt", "-o", tmp_path / "int8.npy", "--int8")
    scales = np.load(tmp_path / "int8.scales.npy")
    assert np.abs(np.load(tmp_path / "int8.npy") * scales[:, None] - expected).max() < scales.max()
    run("embed", folder, tmp_path / "texts.txt", "-o", tmp_path / "vectors.jsonl", "--tokens")
    rows = [json.loads(line) for line in (tmp_path / "vectors.jsonl").read_text().splitlines()]
    assert [[word["text"] for word in row["words"]] for row in rows] == [text.split() for text in TEXTS]
    assert np.abs(np.array([row["vector"] for row in rows]) - expected).max() < 1e-5
    printed = [list(map(float, line.split())) for line in run("embed", folder, tmp_path / "texts.txt").lines]
    assert np.abs(np.array(printed) - expected).max() < 1e-5


BAD_CALLS = {
    "two targets": (["-o", "a.npy", "--index", "b"], "choose one of them"),
    "another suffix": (["-o", "a.txt"], "ends in .npy or .jsonl"),
    "words in a matrix": (["-o", "a.npy", "--tokens"], "list of vectors for each text"),
    "unknown pooling": (["--pooling", "median"], "expected mean, first, max, last"),
    "too many numbers": (["--truncate-dim", "99"], "only 24 numbers"),
    "unknown way with long texts": (["--long", "half"], "'first'"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls_are_usage_errors(folder, name):
    words, message = BAD_CALLS[name]
    called = run("embed", folder, "one", *words)
    assert called.code == 2
    assert message in " ".join(called.err.replace("│", " ").split())
