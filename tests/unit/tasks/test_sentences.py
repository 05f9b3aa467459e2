from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.tasks.sentences import sentence_spans, split_to_fit

TEXTS = st.text(alphabet="ab .!?\n。」\"'", max_size=60)


def substrings(text, spans):
    return [text[start:end] for start, end in spans]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ('He said "Go." Then he left.', ['He said "Go."', "Then he left."]),
        ("一つ。二つ！三つ", ["一つ。", "二つ！", "三つ"]),
        ("A first line\n\n a second", ["A first line", "a second"]),
        ("3.14 is not 3. 14", ["3.14 is not 3.", "14"]),
        ("  no end at all  ", ["no end at all"]),
        ("", []),
        (" \n ", []),
    ],
)
def test_sentences_end_where_a_reader_ends_them(text, expected):
    assert substrings(text, sentence_spans(text)) == expected


@given(TEXTS, st.integers(1, 20))
def test_chunks_lose_nothing_and_fit(text, max_length):
    """Every word is in one chunk, in order; only a single sentence may be too long; no two chunks could be joined."""
    spans = split_to_fit(text, lambda part: len(part) <= max_length)
    parts = substrings(text, spans)
    if len(text) <= max_length:
        assert parts == [text]
        return
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(len(part) <= max_length or len(sentence_spans(part)) == 1 for part in parts)
    for (start, _), (following, end) in pairwise(spans):
        first = sentence_spans(text[following:end])[0][1]
        assert following + first - start > max_length
