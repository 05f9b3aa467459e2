"""Properties of every text: valid offsets, round trips, special tokens in the input encoded as plain text."""

import dataclasses
import pickle
from unicodedata import normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.tokenization.sample_texts import SPACES, SPECIAL
from unit.tokenization.vocabularies import corpus

from regard.tokenization.algorithms import ByteBPE, CharacterLevel, Unigram, WordLevel, WordPiece
from regard.tokenization.tokenizer import SPECIAL_TOKEN_KEYS, SpecialTokens, Tokenizer
from regard.tokenization.tokenizer_trainer import train_tokenizer

TRAINED = {
    algorithm: train_tokenizer(algorithm, corpus(600))
    for algorithm in (
        WordPiece(size=400, lowercase=True),
        ByteBPE(size=400),
        Unigram(size=300),
        WordLevel(size=200),
        CharacterLevel(size=300),
    )
}
WORD_PIECE, BYTES, UNIGRAM, WORDS, CHARACTERS = TRAINED.values()
ANY = st.text() | st.lists(st.sampled_from([*SPECIAL, *SPACES, "a", "man", "é", "e\u0301", "👩‍👩‍👧‍👦"])).map("".join)
KINDS = pytest.mark.parametrize("tokenizer", TRAINED.values(), ids=[type(algorithm).__name__ for algorithm in TRAINED])


@given(text=ANY)
@settings(max_examples=250, deadline=None)
def test_bytes_come_back_exactly(text):
    row = BYTES.encode(text)
    assert BYTES.decode(row.ids) == text
    assert BYTES.decode(BYTES.encode(text, add_special_tokens=False).ids, skip_special_tokens=False) == text


@given(text=ANY)
@settings(max_examples=250, deadline=None)
def test_tokens_of_bytes_cover_every_character_in_order(text):
    row = BYTES.encode(text, add_special_tokens=False)
    position = 0
    for start, end in row.offsets:
        assert start in (position, position - 1)  # a character of several bytes may be several tokens
        assert start < end
        position = end
    assert position == len(text)


@given(text=st.lists(st.sampled_from(sorted(set("".join(corpus(600)))))).map("".join))
@settings(deadline=None)
def test_known_characters_come_back_exactly(text):
    row = CHARACTERS.encode(text)
    assert CHARACTERS.decode(row.ids) == text
    assert row.offsets[:-1] == [(position, position + 1) for position in range(len(text))]


@given(words=st.lists(st.sampled_from([w for w in WORDS.get_vocab() if normalize("NFKC", w) == w and "<" not in w])))
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
    assert all(len(getattr(row, column.name)) == len(row) for column in dataclasses.fields(row))
    text_offsets = [span for span, added in zip(row.offsets, row.special_tokens_mask, strict=True) if not added]
    assert all(0 <= start <= end <= len(text) for start, end in text_offsets)
    assert [start for start, _ in text_offsets] == sorted(start for start, _ in text_offsets)
    assert all(span == (0, 0) for span, added in zip(row.offsets, row.special_tokens_mask, strict=True) if added)


@given(text=st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Z", "M"])))
@settings(max_examples=250, deadline=None)
def test_a_piece_is_what_the_text_at_its_place_becomes(text):
    """Also for texts that normalization lengthens or shortens."""
    for tokenizer in (WORD_PIECE, UNIGRAM):
        row = tokenizer.encode(text, add_special_tokens=False)
        for token_id, token, (start, end) in zip(row.ids, row.tokens, row.offsets, strict=True):
            normalized = tokenizer._backend.normalizer.normalize_str(text[start:end])
            if token_id != tokenizer.special_ids.unk:
                assert token.removeprefix("##").strip("▁") in normalized, (text, token)


@KINDS
@given(text=ANY)
@settings(max_examples=150, deadline=None)
def test_no_text_gives_a_special_token(tokenizer, text):
    special = {token_id for token_id in dataclasses.astuple(tokenizer.special_ids) if token_id is not None}
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert (special - {tokenizer.special_ids.unk}).isdisjoint(ids)


@KINDS
def test_special_tokens_are_read_when_asked_for(tokenizer):
    for role in SPECIAL_TOKEN_KEYS:
        token, token_id = getattr(tokenizer.special_tokens, role), getattr(tokenizer.special_ids, role)
        if token is not None:
            row = tokenizer.encode(f"a {token} man", add_special_tokens=False, parse_special_tokens=True)
            assert token_id in row.ids
            index = row.ids.index(token_id)
            assert row.offsets[index] == (2, 2 + len(token))


@KINDS
@given(texts=st.lists(ANY, max_size=6))
@settings(max_examples=60, deadline=None)
def test_one_at_a_time_or_together_is_the_same(tokenizer, texts):
    rows = tokenizer.encode_batch(texts)
    assert rows == [tokenizer.encode(text) for text in texts]
    assert [row.ids for row in rows] == tokenizer.encode_batch_ids(texts)
    assert tokenizer.decode_batch([row.ids for row in rows]) == [tokenizer.decode(row.ids) for row in rows]


@KINDS
def test_a_pair_says_which_text_is_meant(tokenizer):
    first, second = "a man", "the dog"
    row = tokenizer.encode(first, second)
    for sequence_id, text in enumerate((first, second)):
        single = tokenizer.encode(text, add_special_tokens=False)
        indices = [index for index, value in enumerate(row.sequence_ids) if value == sequence_id]
        assert [row.ids[index] for index in indices] == single.ids
        assert [row.offsets[index] for index in indices] == single.offsets
        assert {row.segments[index] for index in indices} == {sequence_id}


@KINDS
def test_a_text_ends_with_its_end(tokenizer):
    """Every text ends with EOS, so that a model learns it; for WordPiece it is the separator."""
    last = tokenizer.special_ids.sep if tokenizer.special_ids.eos is None else tokenizer.special_ids.eos
    assert tokenizer.encode("a man").ids[-1] == last
    assert tokenizer.encode("").ids[-1] == last
    assert tokenizer.special_ids.pad not in (None, last)


@KINDS
def test_names_and_ids(tokenizer):
    for token, token_id in tokenizer.get_vocab().items():
        assert (tokenizer.token_to_id(token), tokenizer.id_to_token(token_id)) == (token_id, token)
    assert len(tokenizer) == 1 + max(tokenizer.get_vocab().values())


def test_an_unknown_name_is_told_with_the_nearest():
    with pytest.raises(ValueError, match=r"'\[MASKE\]' is not in the vocabulary \(did you mean '\[MASK\]'\?\)"):
        WORD_PIECE.token_to_id("[MASKE]")


@pytest.mark.parametrize("token_id", [-1, 400, 10**9])
def test_an_id_beyond_the_vocabulary_is_an_error(token_id):
    with pytest.raises(ValueError, match=f"no token has id {token_id}: the vocabulary has ids 0 to 399"):
        BYTES.decode([5, token_id])
    with pytest.raises(ValueError, match=f"no token has id {token_id}: the vocabulary has ids 0 to 399"):
        BYTES.id_to_token(token_id)


def test_what_is_no_text_is_named():
    with pytest.raises(ValueError, match=r"text 1, character 2: unpaired surrogate U\+D83D"):
        BYTES.encode_batch(["fine", "ab\ud83d"])
    with pytest.raises(ValueError, match=r"text 1, character 2: unpaired surrogate U\+D83D"):
        BYTES.encode_batch_ids(["fine", "ab\ud83d"])
    with pytest.raises(ValueError, match="texts and pairs differ in length: 2 and 1"):
        BYTES.encode_batch(["a", "b"], ["c"])


def test_a_language_that_nobody_knows_is_an_error():
    with pytest.raises(ValueError, match="language 'de': this tokenizer has no language codes"):
        BYTES.encode("a", language="de")


def test_padding_is_never_the_end_in_disguise():
    backend = BYTES._backend
    assert Tokenizer(backend, SpecialTokens(pad="</s>", eos="</s>", unk="</s>")).special_ids.pad is None
    assert Tokenizer(backend, SpecialTokens(pad="<pad>", eos="</s>")).special_ids.pad == backend.token_to_id("<pad>")
    with pytest.raises(ValueError, match="give padding its own token"):
        train_tokenizer(ByteBPE(size=300), ["a"], special_tokens=SpecialTokens(pad="</s>", eos="</s>"))


@KINDS
def test_it_travels_between_processes(tokenizer):
    text = "A man — été, 👍🏽 </s>"
    assert pickle.loads(pickle.dumps(tokenizer)).encode(text) == tokenizer.encode(text)
