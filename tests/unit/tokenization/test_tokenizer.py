"""What holds for every text: offsets point into it, decoding gives it back, special tokens in it are text."""

import dataclasses
import pickle
from unicodedata import normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.tokenization.sample_texts import SPACES, SPECIAL
from unit.tokenization.vocabularies import corpus

from regard.tokenization.algorithms import ByteBPE, Characters, Unigram, WordPiece, Words
from regard.tokenization.tokenizer import KEYS, Names, Tokenizer
from regard.tokenization.tokenizer_trainer import train

TRAINED = {
    kind: train(kind, corpus(600))
    for kind in (
        WordPiece(size=400, lower=True),
        ByteBPE(size=400),
        Unigram(size=300),
        Words(size=200),
        Characters(size=300),
    )
}
WORD_PIECE, BYTES, UNIGRAM, WORDS, CHARACTERS = TRAINED.values()
ANY = st.text() | st.lists(st.sampled_from([*SPECIAL, *SPACES, "a", "man", "é", "e\u0301", "👩‍👩‍👧‍👦"])).map("".join)
KINDS = pytest.mark.parametrize("tokenizer", TRAINED.values(), ids=[type(kind).__name__ for kind in TRAINED])


@given(text=ANY)
@settings(max_examples=250, deadline=None)
def test_bytes_come_back_exactly(text):
    row = BYTES.encode(text)
    assert BYTES.decode(row.ids) == text
    assert BYTES.decode(BYTES.encode(text, special_tokens=False).ids, keep_special=True) == text


@given(text=ANY)
@settings(max_examples=250, deadline=None)
def test_tokens_of_bytes_cover_every_character_in_order(text):
    row = BYTES.encode(text, special_tokens=False)
    at = 0
    for first, end in row.offsets:
        assert first in (at, at - 1)  # a character of several bytes may be several tokens
        assert first < end
        at = end
    assert at == len(text)


@given(text=st.lists(st.sampled_from(sorted(set("".join(corpus(600)))))).map("".join))
@settings(deadline=None)
def test_known_characters_come_back_exactly(text):
    row = CHARACTERS.encode(text)
    assert CHARACTERS.decode(row.ids) == text
    assert row.offsets[:-1] == [(place, place + 1) for place in range(len(text))]


@given(words=st.lists(st.sampled_from([w for w in WORDS.vocabulary() if normalize("NFKC", w) == w and "<" not in w])))
@settings(deadline=None)
def test_known_words_come_back(words):
    text = " ".join(words)
    assert WORDS.decode(WORDS.encode(text).ids) == text
    assert UNIGRAM.decode(UNIGRAM.encode(text).ids) == text


@KINDS
@given(text=ANY)
@settings(max_examples=200, deadline=None)
def test_offsets_lie_in_the_text_in_order(tokenizer, text):
    row = tokenizer.encode(text)
    assert all(len(getattr(row, part.name)) == len(row) for part in dataclasses.fields(row))
    told = [place for place, added in zip(row.offsets, row.special, strict=True) if not added]
    assert all(0 <= first <= end <= len(text) for first, end in told)
    assert [first for first, _ in told] == sorted(first for first, _ in told)
    assert all(place == (0, 0) for place, added in zip(row.offsets, row.special, strict=True) if added)


@given(text=st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Z", "M"])))
@settings(max_examples=250, deadline=None)
def test_a_piece_is_what_the_text_at_its_place_becomes(text):
    """Also where the text is in no normal form, and characters appear or vanish on the way."""
    for tokenizer in (WORD_PIECE, UNIGRAM):
        row = tokenizer.encode(text, special_tokens=False)
        for number, token, (first, end) in zip(row.ids, row.tokens, row.offsets, strict=True):
            became = tokenizer._core.normalizer.normalize_str(text[first:end])
            if number != tokenizer.special.unknown:
                assert token.removeprefix("##").strip("▁") in became, (text, token)


@KINDS
@given(text=ANY)
@settings(max_examples=150, deadline=None)
def test_no_text_gives_a_special_token(tokenizer, text):
    special = {number for number in dataclasses.astuple(tokenizer.special) if number is not None}
    found = tokenizer.encode(text, special_tokens=False).ids
    assert (special - {tokenizer.special.unknown}).isdisjoint(found)


@KINDS
def test_special_tokens_are_read_when_asked_for(tokenizer):
    for role in KEYS:
        name, number = getattr(tokenizer.names, role), getattr(tokenizer.special, role)
        if name is not None:
            row = tokenizer.encode(f"a {name} man", special_tokens=False, read_special=True)
            assert number in row.ids
            place = row.ids.index(number)
            assert row.offsets[place] == (2, 2 + len(name))


@KINDS
@given(texts=st.lists(ANY, max_size=6))
@settings(max_examples=60, deadline=None)
def test_one_at_a_time_or_together_is_the_same(tokenizer, texts):
    rows = tokenizer.encode_many(texts)
    assert rows == [tokenizer.encode(text) for text in texts]
    assert [row.ids for row in rows] == tokenizer.ids_of(texts)
    assert tokenizer.decode_many([row.ids for row in rows]) == [tokenizer.decode(row.ids) for row in rows]


@KINDS
def test_a_pair_says_which_text_is_meant(tokenizer):
    first, second = "a man", "the dog"
    row = tokenizer.encode(first, second)
    for side, text in enumerate((first, second)):
        alone = tokenizer.encode(text, special_tokens=False)
        mine = [place for place, found in enumerate(row.sides) if found == side]
        assert [row.ids[place] for place in mine] == alone.ids
        assert [row.offsets[place] for place in mine] == alone.offsets
        assert {row.segments[place] for place in mine} == {side}


@KINDS
def test_a_text_ends_with_its_end(tokenizer):
    """The end of a text is always there to be learnt; for BERT's kind it is the separator."""
    last = tokenizer.special.separator if tokenizer.special.end is None else tokenizer.special.end
    assert tokenizer.encode("a man").ids[-1] == last
    assert tokenizer.encode("").ids[-1] == last
    assert tokenizer.special.padding not in (None, last)


@KINDS
def test_names_and_ids(tokenizer):
    for token, number in tokenizer.vocabulary().items():
        assert (tokenizer.id(token), tokenizer.token(number)) == (number, token)
    assert len(tokenizer) == 1 + max(tokenizer.vocabulary().values())


def test_an_unknown_name_is_told_with_the_nearest():
    with pytest.raises(ValueError, match=r"'\[MASKE\]' is not in the vocabulary: did you mean '\[MASK\]'"):
        WORD_PIECE.id("[MASKE]")


@pytest.mark.parametrize("number", [-1, 400, 10**9])
def test_an_id_beyond_the_vocabulary_is_an_error(number):
    with pytest.raises(ValueError, match=f"no token with id {number}: the vocabulary ends at 399"):
        BYTES.decode([5, number])
    with pytest.raises(ValueError, match=f"no token with id {number}"):
        BYTES.token(number)


def test_what_is_no_text_is_named():
    with pytest.raises(ValueError, match=r"text 1, character 2: U\+D83D is half of a character"):
        BYTES.encode_many(["fine", "ab\ud83d"])
    with pytest.raises(ValueError, match=r"text 1, character 2: U\+D83D"):
        BYTES.ids_of(["fine", "ab\ud83d"])
    with pytest.raises(ValueError, match="2 texts and 1 texts to pair"):
        BYTES.encode_many(["a", "b"], ["c"])


def test_a_language_that_nobody_knows_is_an_error():
    with pytest.raises(ValueError, match="language 'de': this tokenizer knows no languages"):
        BYTES.encode("a", language="de")


def test_padding_is_never_the_end_in_disguise():
    core = BYTES._core
    assert Tokenizer(core, Names(padding="</s>", end="</s>", unknown="</s>")).special.padding is None
    assert Tokenizer(core, Names(padding="<pad>", end="</s>")).special.padding == core.token_to_id("<pad>")
    with pytest.raises(ValueError, match="give padding its own token"):
        train(ByteBPE(size=300), ["a"], special=Names(padding="</s>", end="</s>"))


@KINDS
def test_it_travels_between_processes(tokenizer):
    text = "A man — été, 👍🏽 </s>"
    assert pickle.loads(pickle.dumps(tokenizer)).encode(text) == tokenizer.encode(text)
