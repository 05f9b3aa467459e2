"""Use of vectors: neighbours, analogies, standard tests against gensim, the planted corpus, the command."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import gensim
import numpy as np
import pytest
from gensim.models import KeyedVectors
from typer.testing import CliRunner
from unit.vectors.planted_corpus import CITIES, COUNTRIES, planted_text

import regard.vectors
from regard.cli.main import app
from regard.vectors import vector_options
from regard.vectors.space_plot import OFFSETS, label_box, overlap, place_labels, principal_components
from regard.vectors.vector_files import VectorFormat, load, save
from regard.vectors.word_evaluation import evaluate_analogies, evaluate_similarity, ranks
from regard.vectors.word_vectors import UnknownWordError, WordVectors

TEST_DATA = Path(gensim.__file__).parent / "test" / "test_data"


@pytest.fixture(scope="module")
def random_vectors():
    """Vectors for the words of the standard tests, with enough structure that some answers are right."""
    words = list(dict.fromkeys((TEST_DATA / "questions-words.txt").read_text().split()))
    words = [word for word in words if word != ":"][:600]
    pairs = [line.split("\t")[:2] for line in (TEST_DATA / "wordsim353.tsv").read_text().splitlines()]
    words += [word for pair in pairs[5:150] for word in pair]
    words = list(dict.fromkeys(words))
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((len(words), 8)).astype(np.float32)
    return WordVectors(words, matrix)


def as_keyed_vectors(vectors):
    theirs = KeyedVectors(vectors.dim)
    theirs.add_vectors(list(vectors.words), vectors.matrix)
    return theirs


def test_neighbours_and_analogies_are_those_of_gensim(random_vectors):
    theirs = as_keyed_vectors(random_vectors)
    for word in random_vectors.words[:20]:
        expected = theirs.most_similar(word, topn=7)
        found = random_vectors.neighbours(word, 7)
        assert [item.word for item in found] == [name for name, _ in expected]
        np.testing.assert_allclose([item.score for item in found], [score for _, score in expected], atol=1e-6)
    first, second, third = random_vectors.words[:3]
    expected = theirs.most_similar(positive=[second, third], negative=[first], topn=5)
    found = random_vectors.analogy(first, second, third, 5)
    assert [item.word for item in found] == [name for name, _ in expected]
    np.testing.assert_allclose([item.score for item in found], [score for _, score in expected], atol=1e-6)


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("restrict", [300, None])
def test_questions_words_scores_are_those_of_gensim(random_vectors, lowercase, restrict):
    path = TEST_DATA / "questions-words.txt"
    _, theirs = as_keyed_vectors(random_vectors).evaluate_word_analogies(
        str(path), restrict_vocab=restrict or 10**6, case_insensitive=lowercase
    )
    ours = evaluate_analogies(random_vectors, path, restrict=restrict, lowercase=lowercase)
    expected = {part["section"]: (len(part["correct"]), len(part["incorrect"])) for part in theirs}
    assert sum(right + wrong for right, wrong in expected.values()) > 0
    for part in ours.sections:
        assert (part.correct, part.total - part.correct) == expected[part.name]
        assert part.total + part.skipped > 0
    total = expected["Total accuracy"]
    assert (ours.total.correct, ours.total.total) == (total[0], sum(total))
    assert ours.semantic.total + ours.syntactic.total == ours.total.total


@pytest.mark.parametrize("name", ["wordsim353.tsv", "simlex999.txt"])
def test_similarity_scores_are_those_of_gensim(random_vectors, name):
    theirs = as_keyed_vectors(random_vectors).evaluate_word_pairs(str(TEST_DATA / name), case_insensitive=False)
    ours = evaluate_similarity(random_vectors, TEST_DATA / name, lowercase=False)
    assert ours.pearson == pytest.approx(float(theirs[0][0]), abs=1e-6)
    assert ours.spearman == pytest.approx(float(theirs[1][0]), abs=1e-6)
    assert 100 * ours.skipped / (ours.total + ours.skipped) == pytest.approx(theirs[2])


def test_ranks_of_equal_values_are_means():
    assert ranks(np.array([3.0, 1, 3, 2, 3])).tolist() == [4, 1, 4, 2, 4]


def test_a_vector_is_no_copy_and_unknown_words_are_named(random_vectors):
    word = random_vectors.words[5]
    assert np.shares_memory(random_vectors[word], random_vectors.matrix)
    assert word in random_vectors
    with pytest.raises(UnknownWordError, match=f"'{word.upper()}x' is not in"):
        random_vectors[word.upper() + "x"]
    with pytest.raises(UnknownWordError, match="did you mean 'new_york'"):
        WordVectors(["new_york"], np.ones((1, 2), np.float32))["new york"]


def test_bad_test_files_are_named(random_vectors, tmp_path):
    (tmp_path / "q").write_text(": a\nAthens Greece Oslo\n")
    with pytest.raises(ValueError, match="q, line 2: expected four words, found 3"):
        evaluate_analogies(random_vectors, tmp_path / "q")
    (tmp_path / "s").write_text("a b 1\na b\n")
    with pytest.raises(ValueError, match="s, line 2: expected `word word number`"):
        evaluate_similarity(random_vectors, tmp_path / "s")


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    path = tmp_path_factory.mktemp("planted") / "text.txt"
    path.write_text(planted_text())
    return path


def analogy_share(vectors):
    right = total = 0
    for a in range(8):
        for b in range(8):
            if a != b:
                right += vectors.analogy(COUNTRIES[a], CITIES[a], COUNTRIES[b], 1)[0].word == CITIES[b]
                total += 1
    return right / total


METHODS = {
    "skipgram": dict(kind="skipgram"),
    "cbow": dict(kind="cbow", epochs=20),
    "hierarchical": dict(kind="skipgram", negative=0, hierarchical_softmax=True),
    "cbow-hierarchical": dict(kind="cbow", negative=0, hierarchical_softmax=True, epochs=20),
    "glove": dict(kind="glove", window=4, epochs=15),
    "ngrams": dict(kind="skipgram", ngrams=(7, 8), buckets=5000),
}


@pytest.mark.parametrize("name", METHODS)
def test_planted_analogies_and_neighbours_are_found(planted, name):
    options = dict(dim=24, epochs=10, seed=3) | METHODS[name]
    if name != "glove":
        options |= dict(sample=0, window=4)
    vectors = regard.vectors.train(planted, **options)
    assert analogy_share(vectors) >= 0.9
    for number, word in ((number, f"topic{number}x{k}") for number in range(8) for k in range(6)):
        nearest = [item.word for item in vectors.neighbours(word, 75)]
        assert next(name for name in nearest if name.startswith("topic")).startswith(f"topic{number}x")


def test_several_threads_lose_nothing_measurable(planted):
    shares, losses = [], []
    for threads in (1, 4):
        notes = []
        options = dict(dim=24, epochs=10, sample=0, window=4, threads=threads)
        shares.append(analogy_share(regard.vectors.train(planted, note=notes.append, **options)))
        losses.append(float(re.search(r"loss ([\d.]+)", notes[-1])[1]))
    assert min(shares) >= 0.9
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


def test_unknown_words_have_vectors_by_their_ngrams(planted):
    vectors = regard.vectors.train(planted, dim=16, epochs=3, ngrams=(3, 5), buckets=3000)
    assert "topic1x9" not in vectors
    assert vectors.neighbours("topic1x99", 1)[0].word.startswith("topic1x")


def test_wrong_options_are_named(planted):
    with pytest.raises(TypeError, match="no option 'window_size'"):
        regard.vectors.train(planted, window_size=3)
    with pytest.raises(ValueError, match="expected skipgram, cbow, glove"):
        regard.vectors.train(planted, kind="bert")
    with pytest.raises(ValueError, match="nothing to predict"):
        regard.vectors.train(planted, negative=0)


def run(*arguments):
    return CliRunner().invoke(app, ["vectors", *map(str, arguments)])


def test_command_from_text_to_picture(planted, tmp_path):
    out = tmp_path / "vectors.txt"
    result = run("train", planted, "--kind", "skipgram", "--dim", 16, "--epochs", 2, "--threads", 2, "-o", out)
    assert result.exit_code == 0
    assert result.stdout == f"{out}\n"
    assert "words per second" in result.stderr
    header = out.read_text().splitlines()[0]
    assert header == f"{len(load(out))} 16"
    assert KeyedVectors.load_word2vec_format(str(out)).vector_size == 16
    result = run("neighbours", out, "city1", "-n", 3, "--json")
    assert len(json.loads(result.stdout)["neighbours"]) == 3
    result = run("analogy", out, "country1", "city1", "country2", "-n", 2)
    assert len(result.stdout.splitlines()) == 2
    (tmp_path / "questions").write_text(": capitals\ncountry1 city1 country2 city2\ncountry1 city1 nowhere city2\n")
    (tmp_path / "pairs").write_text("city1 city2 5\ncity1 topic2x1 1\ncity1 country1 3\n")
    result = run("evaluate", out, tmp_path / "questions", tmp_path / "pairs")
    assert "most frequent words, without regard to case, 3CosAdd" in result.stdout
    assert "of 1; 1 skipped" in result.stdout
    assert "Spearman" in result.stdout
    result = run("plot", out, "city1", "city2", "country1", "-o", tmp_path / "space.svg")
    assert result.exit_code == 0
    texts = [
        element.text for element in ElementTree.parse(tmp_path / "space.svg").iter("{http://www.w3.org/2000/svg}text")
    ]
    assert {"city1", "city2", "country1"} <= set(texts)


@pytest.mark.parametrize("kind", VectorFormat)
def test_command_writes_all_formats(planted, tmp_path, kind):
    out = tmp_path / "out"
    ngrams = ["--ngrams", "3-4", "--buckets", "100"] if kind is VectorFormat.FASTTEXT else []
    result = run("train", planted, "--dim", 4, "--epochs", 1, "--format", kind.value, *ngrams, "-o", out)
    assert result.exit_code == 0, result.stderr
    assert vector_options  # the module of the defaults
    assert load(out).dim == 4


def test_choices_of_the_command_are_those_of_the_package():
    from regard.cli.vector_choices import VectorFormatName, VectorKind, WordTokens
    from regard.vectors.train_vectors import KINDS

    assert [kind.value for kind in VectorKind] == list(KINDS)
    assert [tokens.value for tokens in WordTokens] == [tokens.value for tokens in vector_options.Tokens]
    assert [name.value for name in VectorFormatName] == [kind.value for kind in VectorFormat]


def test_training_imports_no_torch(planted, tmp_path):
    code = (
        "import sys; from regard.cli.main import app\n"
        "try:\n    app(sys.argv[1:])\nexcept SystemExit as end:\n    assert not end.code\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    arguments = ["vectors", "train", planted, "--epochs", "1", "-o", tmp_path / "v.txt"]
    result = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_without_a_compiler_the_result_is_about_the_same(planted, tmp_path, monkeypatch):
    from regard.vectors import hogwild, train_vectors

    (tmp_path / "t").write_text("".join(planted.read_text().splitlines(keepends=True)[:60]))
    options = dict(dim=8, epochs=1, min_count=2, window=2)
    ours = regard.vectors.train(tmp_path / "t", **options)
    notes = []
    for module in (hogwild, train_vectors):
        monkeypatch.setattr(module, "load_kernels", lambda: (None, "no C compiler found"))
    slow = regard.vectors.train(tmp_path / "t", note=notes.append, **options)
    assert any("no C compiler found" in note for note in notes)
    np.testing.assert_allclose(ours.matrix, slow.matrix, atol=1e-5)


def test_principal_components_are_those_of_the_covariance():
    matrix = np.random.default_rng(0).standard_normal((30, 6)).astype(np.float32) * np.arange(1, 7, dtype=np.float32)
    coordinates, shares = principal_components(matrix)
    covariance = np.cov(matrix.T.astype(np.float64))
    values = np.sort(np.linalg.eigvalsh(covariance))[::-1]
    np.testing.assert_allclose(coordinates.var(axis=0, ddof=1), values[:2], rtol=1e-6)
    np.testing.assert_allclose(shares, values[:2] / values.sum(), rtol=1e-6)
    assert abs(np.corrcoef(coordinates.T)[0, 1]) < 1e-6


def test_labels_of_the_picture_do_not_overlap():
    rng = np.random.default_rng(1)
    words, points = [f"word{n}" for n in range(25)], rng.uniform(0, 400, (25, 2)).tolist()
    places = place_labels(words, [tuple(point) for point in points])
    boxes = [label_box(word, *point, place) for word, point, place in zip(words, points, places, strict=True)]
    assert sum(overlap(box, boxes[:number]) > 0 for number, box in enumerate(boxes)) <= 1
    first = [label_box(word, *point, OFFSETS[0]) for word, point in zip(words, points, strict=True)]
    assert sum(overlap(box, first[:number]) > 0 for number, box in enumerate(first)) > 3


def test_saving_keeps_words_in_order(tmp_path, random_vectors):
    save(random_vectors, tmp_path / "v.txt")
    assert list(load(tmp_path / "v.txt").words) == list(random_vectors.words)
