"""Encoded labels, tags and answers, checked against their texts."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.data.file_fixtures import property_settings
from unit.data.tiny_tokenizers import characters, without_specials

from regard.data import encoding
from regard.data.encoders.documents import DocumentEncoder
from regard.data.encoders.encoder_base import IGNORE_INDEX
from regard.data.encoders.labels import LabeledTextEncoder
from regard.data.encoders.questions import QuestionEncoder
from regard.data.encoders.tags import TaggedSentenceEncoder
from regard.data.encoding import encode
from regard.data.example import Document, LabeledText, Question, TaggedSentence
from regard.data.fields import LabelType
from regard.data.label_ids import collect_labels
from regard.data.length_policy import SlidingWindow, StrictLength, Truncation
from regard.data.reader import read
from regard.data.source import DataSource
from regard.tokenization.algorithms import ByteBPE
from regard.tokenization.text_files import DataError
from regard.tokenization.tokenizer_trainer import train_tokenizer

LETTERS = characters()
SILENT = without_specials()
WORD = st.text("abcdefghij", min_size=1, max_size=5)
TEXT = st.lists(WORD, min_size=1, max_size=8).map(" ".join)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(encoding, "ENCODE_BATCH_EXAMPLES", 3)


@pytest.fixture(scope="session")
def bytes_tokenizer():
    """A tokenizer whose tokens start with the space before their word, and may be parts of a character."""
    return train_tokenizer(ByteBPE(size=300), ["some words to learn from, and some more words"] * 20)


def rows(corpus):
    return [{name: row.tolist() for name, row in corpus[i].items()} for i in range(len(corpus))]


def encode_records(example_type, table, encoder):
    """Encode records without writing a corpus: the rows, and the truncation statistics."""
    encoded = encoder.encode(list(read(example_type, table)))
    columns = {
        name: [row.tolist() for row in np.split(column.values, np.cumsum(column.lengths)[:-1])]
        for name, column in encoded.columns.items()
    }
    if encoded.example_indices:
        columns["example"] = [[index] for index in encoded.example_indices]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)], encoded.truncation


# Labels


@given(
    examples=st.lists(st.tuples(TEXT, st.sampled_from(["bad", "good", "so-so"])), min_size=1, max_size=9),
    paired=st.booleans(),
)
@property_settings
def test_labels(examples, paired):
    more = {"pair": "abc"} if paired else {}
    table = [{"text": text, "label": label, **more} for text, label in examples]
    names = collect_labels(read(LabeledText, table))
    assert names == tuple(sorted({label for _, label in examples}))
    found, _ = encode_records(LabeledText, table, LabeledTextEncoder(tokenizer=LETTERS, labels=names))
    for row, (text, label) in zip(found, examples, strict=True):
        expected = LETTERS.encode(text, more.get("pair"))
        assert (row["tokens"], row["segments"]) == (expected.ids, expected.segments)
        assert names[row["label"][0]] == label


def test_numbers_as_labels(tmp_path):
    table = [{"text": "a", "pair": "b", "label": 2.5}, {"text": "a", "pair": "c", "label": "0"}]
    source = DataSource("embed", table)
    assert [
        row["label"] for row in rows(encode(source, LabeledTextEncoder(tokenizer=LETTERS, labels=None), tmp_path))
    ] == [
        [2.5],
        [0.0],
    ]
    same = DataSource(LabeledText, table, label_type=LabelType.SCORE)
    assert len(encode(same, LabeledTextEncoder(tokenizer=LETTERS, labels=None), tmp_path)) == 2


@given(first=st.integers(1, 12), second=st.integers(1, 12), length=st.integers(5, 30))
@property_settings
def test_of_two_texts_the_longer_is_cut(first, second, length):
    table = [{"text": "a" * first, "pair": "b" * second, "label": "x"}]
    encoder = LabeledTextEncoder(tokenizer=LETTERS, labels=("x",), length_policy=Truncation(length))
    (row,), stats = encode_records(LabeledText, table, encoder)
    excess = max(0, first + second + 3 - length)
    left, right = row["segments"].count(0) - 2, row["segments"].count(1) - 1
    assert left + right == first + second - excess
    assert left == first or right == second or abs(left - right) <= 1
    assert max(left, right) >= min(first, second) or abs(left - right) <= 1
    assert row["tokens"] == LETTERS.encode("a" * left, "b" * right).ids
    assert (stats.examples, stats.tokens) == (int(excess > 0), excess)


def test_broken_labels(tmp_path):
    good = {"text": "abc", "label": "x"}

    def labels(*names, length_policy=None):
        return LabeledTextEncoder(tokenizer=LETTERS, labels=names or None, length_policy=length_policy)

    for table, encoder, match in [
        ([good, {"text": "a", "label": "z"}], labels("x", "y"), "2: unknown label 'z'; known labels: x, y"),
        ([{**good, "pair": "b"}, good], labels("x"), "line 2: this example has one text"),
        ([good], labels(), "line 1: the label should be a number, found 'x'"),
        ([good], labels("x", length_policy=StrictLength(4)), "5 tokens exceed max_length=4"),
        ([good], labels("x", length_policy=Truncation(2)), "leaving none for the text"),
    ]:
        with pytest.raises(DataError, match=match):
            encode(DataSource(LabeledText, table), encoder, tmp_path)
    with pytest.raises(ValueError, match="labeled texts cannot be split into windows"):
        LabeledTextEncoder(tokenizer=LETTERS, labels=("x",), length_policy=SlidingWindow(5, 3))


@pytest.mark.parametrize(
    ("kind", "encoder", "record"),
    [
        (Document, DocumentEncoder(tokenizer=SILENT), {"text": "  "}),
        (LabeledText, LabeledTextEncoder(tokenizer=SILENT, labels=("x",)), {"text": " ", "label": "x"}),
        (TaggedSentence, TaggedSentenceEncoder(tokenizer=SILENT, tags=("O",)), {"words": [], "tags": []}),
    ],
)
def test_what_has_no_token_is_an_error_and_not_left_out(tmp_path, kind, encoder, record):
    with pytest.raises(DataError, match=r"rows, line 1: the \w+ has no tokens"):
        encode(DataSource(kind, [record]), encoder, tmp_path)


# Tags


@given(sentences=st.lists(st.lists(WORD, min_size=1, max_size=8), min_size=1, max_size=6), length=st.integers(8, 50))
@property_settings
def test_each_word_has_its_tag_once(sentences, length):
    """The tag of a word is the word itself, so that the tag of each token can be checked."""
    table = [{"words": words, "tags": words} for words in sentences]
    names = collect_labels(read(TaggedSentence, table))
    encoder = TaggedSentenceEncoder(tokenizer=LETTERS, tags=names, length_policy=SlidingWindow(length, length))
    found = [[] for _ in sentences]
    for row in encode_records(TaggedSentence, table, encoder)[0]:
        (number,) = row["example"]
        assert len(row["tokens"]) == len(row["tags"]) == len(row["words"]) <= length
        for token, tag, word in zip(row["tokens"], row["tags"], row["words"], strict=True):
            assert (word == -1) == (token in (2, 3))
            if word >= 0:
                assert LETTERS.id_to_token(token).removeprefix("##") in sentences[number][word]
            if tag != IGNORE_INDEX:
                found[number].append((word, names[tag]))
    assert found == [list(enumerate(words)) for words in sentences]


ANY = st.lists(
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp", "Mn"]), min_size=1, max_size=4),
    min_size=1,
    max_size=6,
)


@given(words=ANY)
@property_settings
def test_bytes_belong_to_the_words_that_they_are_part_of(bytes_tokenizer, words):
    """The decoded tokens of a word are the word, for any characters, whose bytes may be separate tokens."""
    encoded = TaggedSentenceEncoder(tokenizer=bytes_tokenizer, tags=("O",)).encode(
        list(read(TaggedSentence, [{"words": words, "tags": ["O"] * len(words)}]))
    )
    ids, word_ids = encoded.columns["tokens"].values.tolist(), encoded.columns["words"].values.tolist()
    for index, word in enumerate(words):
        tokens = [token for token, word_id in zip(ids, word_ids, strict=True) if word_id == index]
        assert bytes_tokenizer.decode(tokens).strip(" ") == word
    assert sum(encoded.columns["tags"].values != IGNORE_INDEX) == len(words)


def test_unknown_tags(tmp_path):
    with pytest.raises(DataError, match=r"line 1: unknown label 'B-y'; known labels: O, B-x"):
        encode(
            DataSource(TaggedSentence, [{"words": ["a"], "tags": ["B-y"]}]),
            TaggedSentenceEncoder(tokenizer=LETTERS, tags=("O", "B-x")),
            tmp_path,
        )


# Questions


@given(words=st.lists(WORD, min_size=1, max_size=25), question=WORD, data=st.data(), length=st.integers(12, 40))
@property_settings
def test_answers_are_where_the_text_has_them(words, question, data, length):
    context = " ".join(words)
    letters = [offset for offset, letter in enumerate(context) if letter != " "]
    first = data.draw(st.sampled_from(letters))
    last = data.draw(st.sampled_from([offset for offset in letters if first <= offset < first + 9]))
    answer = context[first : last + 1]
    table = [
        {"id": "n", "question": question, "context": context, "answers": []},
        {"id": "y", "question": question, "context": context, "answers": {"text": [answer], "answer_start": [first]}},
    ]
    stride = data.draw(st.integers(1, length))
    found, _ = encode_records(
        Question, table, QuestionEncoder(tokenizer=LETTERS, length_policy=SlidingWindow(length, stride))
    )
    complete = LETTERS.encode(question, context)
    tokens = sum(1 for sequence_id in complete.sequence_ids if sequence_id == 1)
    capacity, answer_tokens = length - (len(complete) - tokens), len(answer.replace(" ", ""))
    covered, answered = [set(), set()], 0
    for row in found:
        (number,) = row["example"]
        assert row["tokens"][0] == 2
        assert len(row["tokens"]) <= length
        covered[number] |= {(b, e) for b, e in zip(row["begins"], row["ends"], strict=True) if e}
        start, end = row["answer"]
        if (start, end) != (0, 0):
            assert number == 1
            assert context[row["begins"][start] : row["ends"][end]] == answer
            answered += 1
        elif number == 1:  # then the answer is not in this window
            window = {(b, e) for b, e in zip(row["begins"], row["ends"], strict=True) if e}
            assert not {(i, i + 1) for i in range(first, first + len(answer)) if context[i] != " "} <= window
    expected = {span for span, text in zip(complete.offsets, complete.sequence_ids, strict=True) if text == 1}
    assert covered == [expected, expected]
    if capacity - stride + 1 >= answer_tokens or tokens <= capacity:
        assert answered  # windows overlap by more than the length of the answer


def test_broken_answers(tmp_path):
    record = {"id": "1", "question": "who", "context": "ann ran"}
    wrong = [{**record, "answers": {"text": ["ran"], "answer_start": [3]}}]
    with pytest.raises(DataError, match=r"line 1: answer 'ran' is not at character offset 3 .*found ' ran'"):
        encode(DataSource(Question, wrong), QuestionEncoder(tokenizer=LETTERS), tmp_path)
    with pytest.raises(DataError, match="leaving none for the text"):
        encode(
            DataSource(Question, [record]),
            QuestionEncoder(tokenizer=LETTERS, length_policy=SlidingWindow(6, 2)),
            tmp_path,
        )
    with pytest.raises(ValueError, match="truncation would drop answers"):
        QuestionEncoder(tokenizer=LETTERS, length_policy=Truncation(5))


def test_squad_files_end_to_end(tmp_path):
    qas = [{"id": str(i), "question": "who", "answers": [{"text": "ann", "answer_start": 0}]} for i in range(7)]
    document = {"data": [{"paragraphs": [{"context": "ann ran", "qas": qas}]}]}
    (tmp_path / "a.json").write_text(json.dumps(document))
    corpus = encode(DataSource("answer", [tmp_path / "a.json"]), QuestionEncoder(tokenizer=LETTERS), tmp_path / "cache")
    assert [row["example"] for row in rows(corpus)] == [[i] for i in range(7)]  # over several groups of examples
    assert {tuple(row["answer"]) for row in rows(corpus)} == {(5, 7)}
