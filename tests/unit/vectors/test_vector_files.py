"""Files of word vectors: round trips with gensim and with the layout of the original tools; broken files."""

import struct
import warnings

import numpy as np
import pytest
from gensim.models import KeyedVectors
from gensim.models.fasttext import load_facebook_vectors
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.vectors import vector_files
from regard.vectors.char_ngrams import mean_vectors, word_rows
from regard.vectors.fasttext_file import from_input_rows
from regard.vectors.vector_files import VectorFileError, VectorFormat, detect_format, load, save
from regard.vectors.vector_options import CharacterNgrams
from regard.vectors.word_vectors import WordVectors

ODD_WORDS = [
    "the",
    "naïve",
    "日本語",
    "🙂",
    "x" * 3000,
    "e\u0301",
    "10",
    "-0.5",
    "a\u00a0b",
    "#",
    "nul\x01l",
    "\ufeffbom",
]
EDGE_NUMBERS = [0.0, -0.0, 1e-45, 3.4028235e38, 1 / 3, -1e-7, 123456.78]


def make_vectors(words=ODD_WORDS, dim=7, seed=0):
    matrix = np.random.default_rng(seed).standard_normal((len(words), dim)).astype(np.float32)
    matrix[0] = np.resize(np.array(EDGE_NUMBERS, np.float32), dim)
    return WordVectors(list(words), matrix)


def check_equal(loaded, vectors):
    assert list(loaded.words) == list(vectors.words)
    np.testing.assert_array_equal(loaded.matrix.view(np.uint32), vectors.matrix.view(np.uint32))


@pytest.mark.parametrize("kind", [VectorFormat.WORD2VEC_TEXT, VectorFormat.WORD2VEC_BINARY, VectorFormat.GLOVE])
@pytest.mark.parametrize("block", [64, 1 << 22])
def test_round_trip_is_exact(tmp_path, kind, block, monkeypatch):
    from regard.vectors import word2vec_text

    monkeypatch.setattr(vector_files, "BLOCK_BYTES", block)
    monkeypatch.setattr(word2vec_text, "BLOCK_BYTES", block)
    save(make_vectors(), tmp_path / "v", kind)
    assert detect_format(tmp_path / "v") is kind
    check_equal(load(tmp_path / "v"), make_vectors())


@settings(max_examples=50)
@given(
    words=st.lists(
        st.text(st.characters(blacklist_characters=" \n", blacklist_categories=("Cs",)), min_size=1),
        min_size=1,
        max_size=5,
        unique=True,
    ),
    dim=st.integers(1, 4),
    kind=st.sampled_from([VectorFormat.WORD2VEC_TEXT, VectorFormat.WORD2VEC_BINARY]),
)
def test_any_word_round_trips(words, dim, kind, tmp_path_factory):
    path = tmp_path_factory.mktemp("any") / "v"
    vectors = make_vectors(words, dim)
    save(vectors, path, kind)
    check_equal(load(path), vectors)


@pytest.mark.parametrize("binary", [False, True])
def test_gensim_reads_ours_and_we_read_gensims(tmp_path, binary):
    words = [word for word in ODD_WORDS if not word.startswith("\ufeff")]
    vectors = make_vectors(words)
    save(vectors, tmp_path / "ours", VectorFormat.WORD2VEC_BINARY if binary else VectorFormat.WORD2VEC_TEXT)
    theirs = KeyedVectors.load_word2vec_format(str(tmp_path / "ours"), binary=binary)
    assert theirs.index_to_key == words
    np.testing.assert_array_equal(theirs.vectors, vectors.matrix)
    theirs.save_word2vec_format(str(tmp_path / "theirs"), binary=binary)
    check_equal(load(tmp_path / "theirs"), vectors)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # gensim leaves the file open
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_gensim_reads_glove_files_of_ours(tmp_path):
    vectors = make_vectors(["a", "b", "c"])
    save(vectors, tmp_path / "glove.txt", VectorFormat.GLOVE)
    theirs = KeyedVectors.load_word2vec_format(str(tmp_path / "glove.txt"), binary=False, no_header=True)
    np.testing.assert_array_equal(theirs.vectors, vectors.matrix)


def test_layouts_of_the_original_tools(tmp_path):
    """word2vec.c writes `word ` + numbers each followed by a space; without a line end it is Google's binary."""
    matrix = np.array([[0.5, -1.25], [3, 4]], np.float32)
    text = "2 2\n" + "".join(
        f"{word} " + "".join(f"{x:f} " for x in row) + "\n" for word, row in zip("ab", matrix, strict=True)
    )
    (tmp_path / "text").write_text(text)
    binary = b"2 2\n" + b"".join(
        word.encode() + b" " + struct.pack("<2f", *row) + b"\n" for word, row in zip("ab", matrix, strict=True)
    )
    (tmp_path / "binary").write_bytes(binary)
    (tmp_path / "google").write_bytes(binary.replace(b"\n", b"").replace(b"2 2", b"2 2\n", 1))
    (tmp_path / "glove").write_text(". . . 0.5 -1.25\n<unk> 3 4\n")
    for name in ("text", "binary", "google", "glove"):
        loaded = load(tmp_path / name)
        assert list(loaded.words) == ([". . .", "<unk>"] if name == "glove" else ["a", "b"])
        np.testing.assert_array_equal(loaded.matrix, matrix)


def test_words_with_spaces(tmp_path):
    vectors = make_vectors(["new york", "a"])
    save(vectors, tmp_path / "v.txt")
    check_equal(load(tmp_path / "v.txt"), vectors)
    with pytest.raises(ValueError, match=r"word 1 is 'new york': word2vec-binary cannot hold it; write text"):
        save(vectors, tmp_path / "v.bin")
    with pytest.raises(ValueError, match=r"'a\\nb'"):
        save(make_vectors(["a\nb"]), tmp_path / "v.txt")
    assert not (tmp_path / "v.bin").exists()


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


BINARY = b"2 2\na " + struct.pack("<2f", 1, 2) + b"\nb " + struct.pack("<2f", 3, 4) + b"\n"
BROKEN = {
    "empty": (b"", "is empty"),
    "more lines": ("1 2\na 1 2\nb 3 4\n", "line 3: more lines than the 1 words"),
    "fewer lines": ("3 2\na 1 2\nb 3 4\n", "has 2 words, line 1 announces 3"),
    "huge header": ("999999999 300\na 1 2\n", "line 1 announces 999,999,999 words of 300 numbers"),
    "too few numbers": ("2 3\na 1 2 3\nb 3 4\n", "line 3: expected a word and 3 numbers, found 2 after 'b'"),
    "no number": ("2 2\na 1 2\nb 3 x4\n", r"line 3 \('b'\): expected 2 finite numbers, found 'x4'"),
    "NaN": ("2 2\na 1 2\nb nan 4\n", r"line 3 \('b'\): expected 2 finite numbers, found 'nan'"),
    "infinity": ("2 2\na 1 2\nb 3 1e39\n", r"line 3 \('b'\): .* found '1e39'"),
    "cut number": ("a 1 2\nb 3\n", "line 2: expected a word and 2 numbers, found 1 after 'b'"),
    "invalid UTF-8": (b"1 2\na\xff 1 2\n", "line 2, byte 2: the word is not valid UTF-8"),
    "prose": ("Once upon a time\nthere was\n", "line 1 is neither"),
    "binary truncated": (
        BINARY[:-6],
        "announces 2 words of 2 numbers, at least|word 2 of 2, byte 20: the file ends here",
    ),
    "binary wrong count": (BINARY.replace(b"2 2", b"1 2", 1), "bytes after the last of 1 words"),
    "binary wrong dim": (BINARY.replace(b"2 2", b"2 1", 1), "word 2|bytes after|NaN|UTF-8"),
    "binary NaN": (
        BINARY.replace(struct.pack("<f", 3), struct.pack("<f", np.nan)),
        r"word 2 \('b'\) has a vector with NaN",
    ),
    "pickle": (b"\x80\x04\x95abc", "is a pickle, as gensim's"),
    "npy": (b"\x93NUMPY\x01\x00", "NumPy file"),
    "fastText truncated": (struct.pack("<2i", 793712314, 12) + b"abc", "ends within the settings"),
    "fastText version": (struct.pack("<2i", 793712314, 11), "version 11"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_with_the_place(tmp_path, name):
    content, message = BROKEN[name]
    path = write(tmp_path / "broken", content)
    with pytest.raises(VectorFileError, match=message) as error:
        load(path)
    assert str(path) in str(error.value)


def test_no_pickle_of_gensim_is_opened(tmp_path):
    model = KeyedVectors(2)
    model.add_vectors(["a"], np.ones((1, 2), np.float32))
    model.save(str(tmp_path / "model.kv"))
    with pytest.raises(VectorFileError, match="save_word2vec_format"):
        load(tmp_path / "model.kv")


def test_a_word_that_occurs_twice_has_its_first_vector(tmp_path):
    path = write(tmp_path / "v", "3 1\na 1\nb 2\na 3\n")
    with pytest.warns(UserWarning, match=r"1 words occur twice, the first of them 'a' \(word 3\)"):
        loaded = load(path)
    assert list(loaded.words) == ["a", "b"]
    assert loaded["a"] == 1


def fasttext_vectors():
    options = CharacterNgrams(shortest=2, longest=4, buckets=97)
    words = ["king", "naïve", "日本", "a"]
    inputs = np.random.default_rng(1).standard_normal((4 + 97, 6)).astype(np.float32)
    return from_input_rows(words, np.array([9, 7, 5, 3]), inputs, options)


def test_fasttext_files_open_in_gensim_with_the_same_vectors(tmp_path):
    vectors = fasttext_vectors()
    save(vectors, tmp_path / "model.bin")
    assert detect_format(tmp_path / "model.bin") is VectorFormat.FASTTEXT
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = load_facebook_vectors(str(tmp_path / "model.bin"))
    assert theirs.index_to_key == vectors.words
    for word in [*vectors.words, "kings", "日本語", "ÿz", "unknown"]:
        np.testing.assert_allclose(vectors[word], theirs[word], rtol=1e-5, atol=1e-6)
    loaded = load(tmp_path / "model.bin")
    check_equal(loaded, vectors)
    np.testing.assert_array_equal(loaded["queens"], vectors["queens"])
    assert loaded.counts.tolist() == [9, 7, 5, 3]


def test_a_truncated_fasttext_file(tmp_path):
    save(fasttext_vectors(), tmp_path / "model.bin")
    content = (tmp_path / "model.bin").read_bytes()
    for end in (9, 70, 100, 140, 170, 300):
        with pytest.raises(VectorFileError, match=r"ends within|truncated|damaged"):
            load(write(tmp_path / "cut.bin", content[:end]))


def test_vectors_of_words_are_means_of_their_rows():
    words, options = ["ab", "abc"], CharacterNgrams(shortest=3, longest=3, buckets=11)
    starts, rows = word_rows(words, options)
    inputs = np.random.default_rng(2).standard_normal((13, 4)).astype(np.float32)
    expected = [inputs[rows[starts[w] : starts[w + 1]]].mean(axis=0) for w in range(2)]
    np.testing.assert_allclose(mean_vectors(starts, rows, inputs), expected, rtol=1e-6, atol=1e-7)


def test_ngrams_and_hashes_are_those_of_fasttext():
    from gensim.models.fasttext_inner import compute_ngrams_bytes, ft_hash_bytes

    from regard.vectors.char_ngrams import bucket, ngrams

    for word in ("king", "naïve", "日本語", "a", "🙂x"):
        for shortest, longest in ((3, 6), (1, 2), (2, 2)):
            ours = ngrams(word, CharacterNgrams(shortest=shortest, longest=longest))
            theirs = [bytes(part).decode() for part in compute_ngrams_bytes(word, shortest, longest)]
            assert ours == theirs
            assert [bucket(part, 1000) for part in ours] == [ft_hash_bytes(part.encode()) % 1000 for part in ours]


@pytest.mark.slow
def test_a_large_text_file_is_read_in_bounded_memory(tmp_path):
    """The peak is that of the vectors, the words and a few blocks."""
    import subprocess
    import sys

    rows, dim = 60_000, 300
    line = " ".join(f"{x:.6f}" for x in np.random.default_rng(0).standard_normal(dim))
    with (tmp_path / "v.txt").open("w") as stream:
        stream.write(f"{rows} {dim}\n")
        for row in range(rows):
            stream.write(f"word{row} {line}\n")
    code = (
        "import resource, sys; from regard.vectors import load; import numpy\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "vectors = load(sys.argv[1])\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, vectors.matrix.nbytes / 2**20)"
    )
    output = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "v.txt")], capture_output=True, check=True
    ).stdout
    used, vectors = map(float, output.split())
    assert (tmp_path / "v.txt").stat().st_size / 2**20 > 2 * vectors
    assert used < vectors + 60
