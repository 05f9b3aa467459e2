"""Labels, tags and answers as numbers: checked against the text they came from."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.data.file_fixtures import many
from unit.data.tiny_tokenizers import characters, without_specials

from regard.data import encoding
from regard.data.encoders.documents import Documents
from regard.data.encoders.encoder_base import IGNORED
from regard.data.encoders.labels import Labels
from regard.data.encoders.questions import Questions
from regard.data.encoders.tags import Tags
from regard.data.encoding import encode
from regard.data.example import Labelled, Plain, Question, Tagged
from regard.data.fields import Label
from regard.data.label_ids import labels_of
from regard.data.length_policy import Cut, Refuse, Windowed
from regard.data.reader import read
from regard.data.source import Source
from regard.tokenization.algorithms import ByteBPE
from regard.tokenization.text_files import DataError
from regard.tokenization.tokenizer_trainer import train

LETTERS = characters()
SILENT = without_specials()
WORD = st.text("abcdefghij", min_size=1, max_size=5)
TEXT = st.lists(WORD, min_size=1, max_size=8).map(" ".join)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(encoding, "EXAMPLES", 3)


@pytest.fixture(scope="session")
def bytes_tokenizer():
    """A tokenizer whose tokens begin with the blank before their word, and may be parts of a character."""
    return train(ByteBPE(size=300), ["some words to learn from, and some more words"] * 20)


def rows(corpus):
    return [{name: row.tolist() for name, row in corpus[i].items()} for i in range(len(corpus))]


def made(kind, table, encoder):
    """The rows of these records, as a corpus would have them, and what was cut: without a disk, for quick tests."""
    chunk = encoder.encode(list(read(kind, table)))
    columns = {
        name: [row.tolist() for row in np.split(column.values, np.cumsum(column.lengths)[:-1])]
        for name, column in chunk.columns.items()
    }
    if chunk.origin:
        columns["example"] = [[number] for number in chunk.origin]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)], chunk.cuts


# Labels


@given(
    examples=st.lists(st.tuples(TEXT, st.sampled_from(["bad", "good", "so-so"])), min_size=1, max_size=9),
    paired=st.booleans(),
)
@many
def test_labels(examples, paired):
    more = {"pair": "abc"} if paired else {}
    table = [{"text": text, "label": label, **more} for text, label in examples]
    names = labels_of(read(Labelled, table))
    assert names == tuple(sorted({label for _, label in examples}))
    found, _ = made(Labelled, table, Labels(tokenizer=LETTERS, labels=names))
    for row, (text, label) in zip(found, examples, strict=True):
        expected = LETTERS.encode(text, more.get("pair"))
        assert (row["tokens"], row["segments"]) == (expected.ids, expected.segments)
        assert names[row["label"][0]] == label


def test_numbers_as_labels(tmp_path):
    table = [{"text": "a", "pair": "b", "label": 2.5}, {"text": "a", "pair": "c", "label": "0"}]
    source = Source("embed", table)
    assert [row["label"] for row in rows(encode(source, Labels(tokenizer=LETTERS, labels=None), tmp_path))] == [
        [2.5],
        [0.0],
    ]
    same = Source(Labelled, table, label=Label.NUMBER)
    assert len(encode(same, Labels(tokenizer=LETTERS, labels=None), tmp_path)) == 2


@given(one=st.integers(1, 12), other=st.integers(1, 12), length=st.integers(5, 30))
@many
def test_of_two_texts_the_longer_is_cut(one, other, length):
    table = [{"text": "a" * one, "pair": "b" * other, "label": "x"}]
    encoder = Labels(tokenizer=LETTERS, labels=("x",), long=Cut(length))
    (row,), cuts = made(Labelled, table, encoder)
    over = max(0, one + other + 3 - length)
    left, right = row["segments"].count(0) - 2, row["segments"].count(1) - 1
    assert left + right == one + other - over
    assert left == one or right == other or abs(left - right) <= 1
    assert max(left, right) >= min(one, other) or abs(left - right) <= 1
    whole = LETTERS.encode("a" * left, "b" * right)
    assert row["tokens"] == whole.ids
    assert (cuts.examples, cuts.tokens) == (int(over > 0), over)


def test_broken_labels(tmp_path):
    good = {"text": "abc", "label": "x"}
    for table, encoder, match in [
        ([good, {"text": "a", "label": "z"}], Labels(tokenizer=LETTERS, labels=("x", "y")), "2: label 'z' is not"),
        ([{**good, "pair": "b"}, good], Labels(tokenizer=LETTERS, labels=("x",)), "line 2: there is one text here"),
        ([good], Labels(tokenizer=LETTERS, labels=None), "line 1: the label should be a number, found 'x'"),
        ([good], Labels(tokenizer=LETTERS, labels=("x",), long=Refuse(4)), "5 tokens, and at most 4 are allowed"),
        ([good], Labels(tokenizer=LETTERS, labels=("x",), long=Cut(2)), "none is left for the text"),
    ]:  # fmt: skip
        with pytest.raises(DataError, match=match):
            encode(Source(Labelled, table), encoder, tmp_path)
    with pytest.raises(ValueError, match="a label belongs to a whole text"):
        Labels(tokenizer=LETTERS, labels=("x",), long=Windowed(5, 3))


@pytest.mark.parametrize(
    ("kind", "encoder", "record"),
    [
        (Plain, Documents(tokenizer=SILENT), {"text": "  "}),
        (Labelled, Labels(tokenizer=SILENT, labels=("x",)), {"text": " ", "label": "x"}),
        (Tagged, Tags(tokenizer=SILENT, tags=("O",)), {"words": [], "tags": []}),
    ],
)
def test_what_has_no_token_is_an_error_and_not_left_out(tmp_path, kind, encoder, record):
    with pytest.raises(DataError, match=r"rows, line 1: the \w+ has no token"):
        encode(Source(kind, [record]), encoder, tmp_path)


# Tags


@given(sentences=st.lists(st.lists(WORD, min_size=1, max_size=8), min_size=1, max_size=6), length=st.integers(8, 50))
@many
def test_each_word_has_its_tag_once(sentences, length):
    """The tag of a word is the word itself, so that what stands at a token can be checked."""
    table = [{"words": words, "tags": words} for words in sentences]
    names = labels_of(read(Tagged, table))
    encoder = Tags(tokenizer=LETTERS, tags=names, long=Windowed(length, length))
    found = [[] for _ in sentences]
    for row in made(Tagged, table, encoder)[0]:
        (number,) = row["example"]
        assert len(row["tokens"]) == len(row["tags"]) == len(row["words"]) <= length
        for token, tag, word in zip(row["tokens"], row["tags"], row["words"], strict=True):
            assert (word == -1) == (token in (2, 3))
            if word >= 0:
                assert LETTERS.token(token).removeprefix("##") in sentences[number][word]
            if tag != IGNORED:
                found[number].append((word, names[tag]))
    assert found == [list(enumerate(words)) for words in sentences]


ANY = st.lists(
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp", "Mn"]), min_size=1, max_size=4),
    min_size=1,
    max_size=6,
)


@given(words=ANY)
@many
def test_bytes_belong_to_the_words_that_they_are_part_of(bytes_tokenizer, words):
    """The tokens of a word, decoded, are the word: for any characters, of which bytes may be tokens."""
    chunk = Tags(tokenizer=bytes_tokenizer, tags=("O",)).encode(
        list(read(Tagged, [{"words": words, "tags": ["O"] * len(words)}]))
    )
    ids, numbers = chunk.columns["tokens"].values.tolist(), chunk.columns["words"].values.tolist()
    for number, word in enumerate(words):
        mine = [token for token, of in zip(ids, numbers, strict=True) if of == number]
        assert bytes_tokenizer.decode(mine).strip(" ") == word
    assert sum(chunk.columns["tags"].values != IGNORED) == len(words)


def test_unknown_tags(tmp_path):
    with pytest.raises(DataError, match=r"line 1: label 'B-y' is not known; known are O, B-x"):
        encode(
            Source(Tagged, [{"words": ["a"], "tags": ["B-y"]}]), Tags(tokenizer=LETTERS, tags=("O", "B-x")), tmp_path
        )


# Questions


@given(words=st.lists(WORD, min_size=1, max_size=25), asked=WORD, data=st.data(), length=st.integers(12, 40))
@many
def test_answers_are_where_the_text_has_them(words, asked, data, length):
    context = " ".join(words)
    letters = [place for place, letter in enumerate(context) if letter != " "]
    begin = data.draw(st.sampled_from(letters))
    last = data.draw(st.sampled_from([place for place in letters if begin <= place < begin + 9]))
    answer = context[begin : last + 1]
    table = [
        {"id": "n", "question": asked, "context": context, "answers": []},
        {"id": "y", "question": asked, "context": context, "answers": {"text": [answer], "answer_start": [begin]}},
    ]
    stride = data.draw(st.integers(1, length))
    found, _ = made(Question, table, Questions(tokenizer=LETTERS, long=Windowed(length, stride)))
    whole = LETTERS.encode(asked, context)
    tokens = sum(1 for side in whole.sides if side == 1)
    room, inside = length - (len(whole) - tokens), len(answer.replace(" ", ""))
    seen, answered = [set(), set()], 0
    for row in found:
        (number,) = row["example"]
        assert row["tokens"][0] == 2
        assert len(row["tokens"]) <= length
        seen[number] |= {(b, e) for b, e in zip(row["begins"], row["ends"], strict=True) if e}
        start, end = row["answer"]
        if (start, end) != (0, 0):
            assert number == 1
            assert context[row["begins"][start] : row["ends"][end]] == answer
            answered += 1
        elif number == 1:  # the answer is really not in this window
            there = {(b, e) for b, e in zip(row["begins"], row["ends"], strict=True) if e}
            assert not {(i, i + 1) for i in range(begin, begin + len(answer)) if context[i] != " "} <= there
    every = {offsets for offsets, side in zip(whole.offsets, whole.sides, strict=True) if side == 1}
    assert seen == [every, every]
    if room - stride + 1 >= inside or tokens <= room:
        assert answered  # windows overlap by more than the answer is long


def test_broken_answers(tmp_path):
    asked = {"id": "1", "question": "who", "context": "ann ran"}
    wrong = [{**asked, "answers": {"text": ["ran"], "answer_start": [3]}}]
    with pytest.raises(DataError, match=r"line 1: the answer 'ran' does not stand at character 3.*' ran' does"):
        encode(Source(Question, wrong), Questions(tokenizer=LETTERS), tmp_path)
    with pytest.raises(DataError, match="so none is left for the text"):
        encode(Source(Question, [asked]), Questions(tokenizer=LETTERS, long=Windowed(6, 2)), tmp_path)
    with pytest.raises(ValueError, match="a cut would lose answers"):
        Questions(tokenizer=LETTERS, long=Cut(5))


def test_squad_files_end_to_end(tmp_path):
    qas = [{"id": str(i), "question": "who", "answers": [{"text": "ann", "answer_start": 0}]} for i in range(7)]
    document = {"data": [{"paragraphs": [{"context": "ann ran", "qas": qas}]}]}
    (tmp_path / "a.json").write_text(json.dumps(document))
    corpus = encode(Source("answer", [tmp_path / "a.json"]), Questions(tokenizer=LETTERS), tmp_path / "cache")
    assert [row["example"] for row in rows(corpus)] == [[i] for i in range(7)]  # over several chunks
    assert {tuple(row["answer"]) for row in rows(corpus)} == {(5, 7)}
