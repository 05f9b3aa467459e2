"""Reading texts: blocks, lines, compressed files, vocabulary; phrases."""

import bz2
import gzip
import itertools
import lzma
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.vectors import phrases as phrases_module
from regard.vectors import word_text
from regard.vectors.phrases import count_pairs, find_phrases
from regard.vectors.vector_options import TextOptions, Tokens
from regard.vectors.word_corpus import LINE_END, encode
from regard.vectors.word_text import read_words

ALL = TextOptions(min_count=1)


def lines_of(blocks):
    """Join the lists of the blocks: the first of a block continues the last one of the block before."""
    lines = [[]]
    for block in blocks:
        lines[-1] += block[0]
        lines += block[1:]
    return lines


def decoded(corpus):
    lines = [[]]
    for token in corpus.tokens.tolist():
        if token == LINE_END:
            lines.append([])
        else:
            lines[-1].append(corpus.vocabulary.words[token])
    return [line for line in lines if line]


@given(text=st.text(st.sampled_from("ab é日\u00a0\u2028\t\r\n🙂"), max_size=60), block=st.integers(1, 9))
def test_blocks_do_not_change_lines_and_words(text, block, tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "t.txt"
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_text, "BLOCK_BYTES", block)
        lines = lines_of(read_words([path], ALL))
    assert [line for line in lines if line] == [line.split() for line in text.split("\n") if line.split()]


def test_long_lines_are_not_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(word_text, "BLOCK_BYTES", 1000)
    words = [f"w{number % 97}" for number in range(25_000)]
    (tmp_path / "t.txt").write_text(" ".join(words) + "\nnext line")
    corpus = encode([tmp_path / "t.txt"], ALL, tmp_path)
    assert decoded(corpus) == [words, ["next", "line"]]


@pytest.mark.parametrize(("suffix", "opener"), [(".gz", gzip.open), (".bz2", bz2.open), (".xz", lzma.open)])
def test_compressed_files(tmp_path, suffix, opener):
    path = tmp_path / f"t.txt{suffix}"
    with opener(path, "wb") as stream:
        stream.write("à b\nc\n".encode() * 50)
    assert decoded(encode([path], ALL, tmp_path)) == [["à", "b"], ["c"]] * 50
    damaged = tmp_path / f"d.txt{suffix}"
    damaged.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ValueError, match=r"d\.txt.*damaged after"):
        encode([damaged], ALL, tmp_path)


def test_several_files_do_not_join_lines(tmp_path):
    (tmp_path / "a").write_text("x y")
    (tmp_path / "b").write_text("z\n")
    assert decoded(encode([tmp_path / "a", tmp_path / "b"], ALL, tmp_path)) == [["x", "y"], ["z"]]


def test_words_without_punctuation_in_lower_case(tmp_path):
    (tmp_path / "t").write_text("“Don’t,” she said: it's 3.5%!\n")
    options = TextOptions(min_count=1, tokens=Tokens.WORDS, lowercase=True)
    assert decoded(encode([tmp_path / "t"], options, tmp_path)) == [["don’t", "she", "said", "it's", "3", "5"]]


def test_vocabulary_has_the_frequent_words_first(tmp_path):
    (tmp_path / "t").write_text("b b a a c c c d\nd x\n")
    corpus = encode([tmp_path / "t"], TextOptions(min_count=2), tmp_path)
    assert corpus.vocabulary.words == ["c", "a", "b", "d"]
    assert corpus.vocabulary.counts.tolist() == [3, 2, 2, 2]
    corpus = encode([tmp_path / "t"], TextOptions(min_count=2, max_vocabulary=2), tmp_path)
    assert decoded(corpus) == [["a", "a", "c", "c", "c"]]


def test_bad_texts_are_named(tmp_path):
    (tmp_path / "t").write_bytes(b"abc \xff def\n" * 3)
    with pytest.raises(ValueError, match=r"t: byte 5 is not valid UTF-8"):
        encode([tmp_path / "t"], ALL, tmp_path)
    (tmp_path / "u").write_text("a b c")
    with pytest.raises(ValueError, match=r"no word occurs 5 times .3 different words"):
        encode([tmp_path / "u"], TextOptions(), tmp_path)
    with pytest.raises(ValueError, match="does not exist"):
        encode([tmp_path / "v"], TextOptions(), tmp_path)
    (tmp_path / "w").write_bytes("aé".encode()[:-1])
    with pytest.raises(ValueError, match="truncated"):
        encode([tmp_path / "w"], ALL, tmp_path)


def test_punctuation_at_words_is_reported(tmp_path):
    (tmp_path / "t").write_text("a house, a tree.\n" * 20)
    notes = []
    encode([tmp_path / "t"], TextOptions(), tmp_path, notes.append)
    assert "50% of the words end in punctuation" in notes[0]


def reference_phrases(lines, options):
    """Scores and joining by the formula, in plain Python."""
    single = Counter(word for line in lines for word in line)
    pairs = Counter(pair for line in lines for pair in itertools.pairwise(line))
    total = sum(single.values())
    chosen = {
        (a, b)
        for (a, b), count in pairs.items()
        if (count - options.min_count) * total / (single[a] * single[b]) > options.phrase_threshold
    }
    result = []
    for line in lines:
        joined, place = [], 0
        while place < len(line):
            if tuple(line[place : place + 2]) in chosen:
                joined.append("_".join(line[place : place + 2]))
                place += 2
            else:
                joined.append(line[place])
                place += 1
        result.append(joined)
    return pairs, result


@given(lines=st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=9), min_size=1, max_size=12))
def test_phrases_are_those_of_the_formula(lines, tmp_path_factory):
    folder = tmp_path_factory.mktemp("phrases")
    (folder / "t").write_text("\n".join(map(" ".join, lines)))
    options = TextOptions(min_count=1, phrases=1, phrase_threshold=1.2)
    pairs, expected = reference_phrases(lines, options)
    corpus = encode([folder / "t"], TextOptions(min_count=1), folder)
    counted = count_pairs(corpus.tokens, len(corpus.vocabulary))
    words = corpus.vocabulary.words
    assert pairs == {
        (words[a], words[b]): count for a, b, count in zip(counted.first, counted.second, counted.counts, strict=True)
    }
    assert len(find_phrases(counted, corpus.vocabulary, options).first) <= len(pairs)
    assert decoded(encode([folder / "t"], options, folder)) == expected


def test_phrases_do_not_reach_over_unknown_words_and_grow_in_a_second_pass(tmp_path):
    rng = np.random.default_rng(0)
    noise = [" ".join(rng.choice(list("pqrstuvw"), 6)) for _ in range(300)]
    (tmp_path / "t").write_text(
        "\n".join(["new york city"] * 20 + ["new rare" + str(n) + " york" for n in range(20)] + noise)
    )
    options = TextOptions(min_count=5, phrases=1, phrase_threshold=5.0)
    words = encode([tmp_path / "t"], options, tmp_path).vocabulary.words
    assert "york_city" in words or "new_york" in words
    words = encode(
        [tmp_path / "t"], TextOptions(min_count=5, phrases=2, phrase_threshold=5.0), tmp_path
    ).vocabulary.words
    assert "new_york_city" in words


def test_phrases_at_the_border_of_parts(tmp_path, monkeypatch):
    (tmp_path / "t").write_text("x a b y a b z\n" * 30)
    options = TextOptions(min_count=1, phrases=1, phrase_threshold=1.5)
    expected = decoded(encode([tmp_path / "t"], options, tmp_path))
    monkeypatch.setattr(phrases_module, "PART", 8)  # the length of a line
    assert decoded(encode([tmp_path / "t"], options, tmp_path)) == expected
