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
    """Every word is in one chunk, in order; every chunk fits; no two chunks of whole sentences could be joined."""
    spans = list(split_to_fit(text, lambda part: len(part) <= max_length))
    parts = substrings(text, spans)
    if len(text) <= max_length:
        assert parts == [text]
        return
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(len(part) <= max_length for part in parts)
    starts = {start for start, _ in sentence_spans(text)}
    ends = {end for _, end in sentence_spans(text)}
    for (start, middle), (following, end) in pairwise(spans):
        if {start, following} <= starts and {middle, end} <= ends:
            first = sentence_spans(text[following:end])[0][1]
            assert following + first - start > max_length


@given(TEXTS, st.integers(1, 20))
def test_words_stay_whole_where_they_fit(text, max_length):
    spans = split_to_fit(text, lambda part: len(part) <= max_length)
    words = [word for start, end in spans for word in text[start:end].split()]
    if all(len(word) <= max_length for word in text.split()):
        assert all(word in text.split() for word in words)


def test_a_long_text_is_measured_in_short_parts():
    """Otherwise a text of n characters would take n² time, and Ctrl-C would wait for a call with all of it."""
    measured = []

    def fits(part):
        if len(part) > 10_000:
            return False  # as a caller does that knows how long a token may be
        measured.append(len(part))
        return len(part) <= 500

    for text in ("word " * 20_000, "x" * 100_000, "A sentence of six words ends. " * 3_000):
        measured.clear()
        spans = list(split_to_fit(text, fits))
        assert len("".join(text[start:end] for start, end in spans).replace(" ", "")) == len(text.replace(" ", ""))
        assert sum(measured) < 30 * len(text)
        assert len(spans) < 2.2 * len(text) / 500
