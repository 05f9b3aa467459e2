"""Text of tokens, and text that unfolds: what a stream shows is exactly the text, whatever the tokens."""

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.tasks import vocabularies

from regard.tasks.results import EMPTY, Reader, Unfolding, Written, joined
from regard.tokenization.algorithms import Characters, Unigram, WordPiece, Words
from regard.tokenization.tokenizer_loader import load
from regard.tokenization.tokenizer_trainer import train

LAYOUTS = ["trained", "roberta", "gpt2", "gpt", "ctrl", "t5", "mbart", "llama", "marian"]
KINDS = [WordPiece(size=120), Unigram(size=120), Words(size=60), Characters(size=60)]


@pytest.fixture(
    scope="module", params=[*LAYOUTS, *KINDS], ids=lambda kind: kind if isinstance(kind, str) else type(kind).__name__
)
def reader(request, tmp_path_factory):
    if not isinstance(request.param, str):
        return Reader(train(request.param, vocabularies.sentences(100)))
    folder = tmp_path_factory.mktemp(request.param)
    getattr(vocabularies, request.param)(folder)
    return Reader(load(folder).target)


@functools.cache
def unsettled(reader):
    return [token for token in range(len(reader.tokenizer)) if reader.unsettled(token)]


def chunks(draw, tokens):
    """The tokens in chunks, as a beam search lets them go."""
    cuts = sorted(draw(st.lists(st.integers(0, len(tokens)), max_size=5)))
    return [tokens[start:end] for start, end in zip([0, *cuts], [*cuts, len(tokens)], strict=True)]


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_what_is_shown_bit_by_bit_is_the_text(reader, data):
    """Random tokens: bytes that are no characters, halves of words, special tokens, and numbers without a token."""
    size = len(reader.tokenizer)
    odd = unsettled(reader)
    token = st.integers(0, size + 3) if not odd else st.one_of(st.integers(0, size + 3), st.sampled_from(odd))
    tokens = data.draw(st.lists(token, max_size=14))
    prompt = [token for token in data.draw(st.lists(token, max_size=4)) if token < size]
    for text in (reader.text, lambda new: reader.behind(prompt, new)):
        unfolding = Unfolding(text, reader.unsettled)
        shown = "".join(unfolding.add(chunk) for chunk in chunks(data.draw, tokens))
        assert shown + unfolding.rest(text(tokens)) == text(tokens)


@pytest.mark.parametrize("text", ["naïve café", "東京 🙂 🙂🙂", "собака don't", "a é"])
def test_characters_of_several_tokens_come_whole(reader, text):
    """One token at a time, no piece has half a character in it."""
    unfolding = Unfolding(reader.text, reader.unsettled)
    tokens = reader.tokenizer.encode(text, special_tokens=False).ids
    shown = [unfolding.add([token]) for token in tokens]
    shown.append(unfolding.rest(reader.text(tokens)))
    assert "".join(shown) == reader.text(tokens)
    assert "\ufffd" not in "".join(shown)


def test_a_text_is_shown_before_it_ends(reader):
    """Not everything waits for the end: of a long text, more than half is shown on the way."""
    tokens = reader.tokenizer.encode("the small dog runs under the big green tree", special_tokens=False).ids
    unfolding = Unfolding(reader.text, reader.unsettled)
    assert len("".join(unfolding.add([token]) for token in tokens)) > len(reader.text(tokens)) / 2


def test_numbers_without_a_token_are_no_text(reader):
    tokens = reader.tokenizer.encode("the dog", special_tokens=False).ids
    beyond = len(reader.tokenizer) + 5
    assert reader.text([tokens[0], beyond, *tokens[1:], beyond]) == reader.text(tokens)
    assert reader.name(beyond) == f"<{beyond}>"


def test_a_continuation_begins_with_the_space_before_it(reader):
    prompt, whole = (reader.tokenizer.encode(text, special_tokens=False).ids for text in ("the dog", "the dog runs"))
    assert whole[: len(prompt)] == prompt
    assert reader.behind(prompt, whole[len(prompt) :]) == " runs"


def piece(text, **more):
    return Written(**dict(text=text, score=-1.0, stopped="end", limit=9, tokens=(text,), token_scores=(-1.0,)) | more)


def test_pieces_are_put_together_again():
    parts = [
        piece("a b", limit=7, truncated=2, alternatives=(piece("x"),)),
        piece("c", stopped="length", alternatives=(piece("y"), piece("z"))),
    ]
    whole = joined(parts)
    assert (whole.text, whole.score, whole.stopped, whole.limit) == ("a b c", -2.0, "length", 9)
    assert (whole.truncated, whole.pieces, whole.tokens) == (2, 2, ("a b", "c"))
    assert [other.text for other in whole.alternatives] == ["x y"]
    assert joined(parts[:1]) is parts[0]


def test_json_says_everything():
    told = piece("a", alignment=((0, 0),), alternatives=(piece("b"),)).as_json()
    assert set(told) == {
        "text",
        "score",
        "stopped",
        "limit",
        "truncated",
        "pieces",
        "tokens",
        "token_scores",
        "alignment",
        "alternatives",
    }
    assert told["alignment"] == [[0, 0]]
    assert told["alternatives"][0]["text"] == "b"
    assert set(EMPTY.as_json()) == set(told) - {"alignment", "alternatives"}
