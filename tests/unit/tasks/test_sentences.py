from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.tasks.sentences import pieces, sentences

TEXTS = st.text(alphabet="ab .!?\n。」\"'", max_size=60)


def cut(text, spans):
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
    assert cut(text, sentences(text)) == expected


@given(TEXTS, st.integers(1, 20))
def test_pieces_lose_nothing_and_fit(text, room):
    """Every word is in exactly one piece, in order; only a single sentence may be too long; no two could be one."""
    found = pieces(text, lambda part: len(part) <= room)
    parts = cut(text, found)
    if len(text) <= room:
        assert parts == [text]
        return
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(len(part) <= room or len(sentences(part)) == 1 for part in parts)
    for (start, _), (following, end) in pairwise(found):
        first = sentences(text[following:end])[0][1]
        assert following + first - start > room
