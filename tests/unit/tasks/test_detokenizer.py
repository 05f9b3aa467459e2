"""Detokenization, complete and incremental: a stream yields exactly the text, whatever the tokens."""

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.tasks import vocabularies

from regard.tasks.detokenizer import Detokenizer, IncrementalDetokenizer
from regard.tasks.translate import Translation
from regard.tasks.translator import EMPTY_TRANSLATION, join_chunks
from regard.tokenization.algorithms import CharacterLevel, Unigram, WordLevel, WordPiece
from regard.tokenization.tokenizer_loader import load_tokenizer
from regard.tokenization.tokenizer_trainer import train_tokenizer

LAYOUTS = ["trained", "roberta", "gpt2", "gpt", "ctrl", "t5", "mbart", "llama", "marian"]
KINDS = [WordPiece(size=120), Unigram(size=120), WordLevel(size=60), CharacterLevel(size=60)]


@pytest.fixture(
    scope="module", params=[*LAYOUTS, *KINDS], ids=lambda kind: kind if isinstance(kind, str) else type(kind).__name__
)
def detokenizer(request, tmp_path_factory):
    if not isinstance(request.param, str):
        return Detokenizer(train_tokenizer(request.param, vocabularies.sentences(100)))
    folder = tmp_path_factory.mktemp(request.param)
    getattr(vocabularies, request.param)(folder)
    return Detokenizer(load_tokenizer(folder).target)


@functools.cache
def incomplete_tokens(detokenizer):
    return [token for token in range(len(detokenizer.tokenizer)) if detokenizer.is_incomplete(token)]


def split(draw, tokens):
    """The tokens in parts, as a beam search streams them."""
    cuts = sorted(draw(st.lists(st.integers(0, len(tokens)), max_size=5)))
    return [tokens[start:end] for start, end in zip([0, *cuts], [*cuts, len(tokens)], strict=True)]


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_the_parts_of_a_stream_are_the_text(detokenizer, data):
    """Random tokens: incomplete characters, parts of words, special tokens, and ids beyond the vocabulary."""
    size = len(detokenizer.tokenizer)
    incomplete, token = incomplete_tokens(detokenizer), st.integers(0, size + 3)
    token = st.one_of(token, st.sampled_from(incomplete)) if incomplete else token
    tokens = data.draw(st.lists(token, max_size=14))
    prompt = [token for token in data.draw(st.lists(token, max_size=4)) if token < size]
    for decode in (detokenizer.decode, lambda new: detokenizer.decode_continuation(prompt, new)):
        incremental = IncrementalDetokenizer(decode, detokenizer.is_incomplete)
        streamed = "".join(incremental.add(part) for part in split(data.draw, tokens))
        assert streamed + incremental.flush(decode(tokens)) == decode(tokens)


@pytest.mark.parametrize("text", ["naïve café", "東京 🙂 🙂🙂", "собака don't", "a é"])
def test_characters_of_several_tokens_are_not_split(detokenizer, text):
    """One token at a time, no part has an incomplete character."""
    incremental = IncrementalDetokenizer(detokenizer.decode, detokenizer.is_incomplete)
    tokens = detokenizer.tokenizer.encode(text, add_special_tokens=False).ids
    parts = [incremental.add([token]) for token in tokens]
    parts.append(incremental.flush(detokenizer.decode(tokens)))
    assert "".join(parts) == detokenizer.decode(tokens)
    assert "\ufffd" not in "".join(parts)


def test_text_is_streamed_before_the_end(detokenizer):
    """More than half of a long text is streamed before the last token."""
    tokens = detokenizer.tokenizer.encode("the small dog runs under the big green tree", add_special_tokens=False).ids
    incremental = IncrementalDetokenizer(detokenizer.decode, detokenizer.is_incomplete)
    assert len("".join(incremental.add([token]) for token in tokens)) > len(detokenizer.decode(tokens)) / 2


def test_ids_beyond_the_vocabulary_have_no_text(detokenizer):
    tokens = detokenizer.tokenizer.encode("the dog", add_special_tokens=False).ids
    beyond = len(detokenizer.tokenizer) + 5
    assert detokenizer.decode([tokens[0], beyond, *tokens[1:], beyond]) == detokenizer.decode(tokens)
    assert detokenizer.token_string(beyond) == f"<{beyond}>"


def test_a_continuation_begins_with_the_space_before_it(detokenizer):
    prompt, ids = (
        detokenizer.tokenizer.encode(text, add_special_tokens=False).ids for text in ("the dog", "the dog runs")
    )
    assert ids[: len(prompt)] == prompt
    assert detokenizer.decode_continuation(prompt, ids[len(prompt) :]) == " runs"


def chunk(text, **fields):
    defaults = dict(text=text, score=-1.0, stopped="end", max_new_tokens=9, tokens=(text,), token_scores=(-1.0,))
    return Translation(**defaults | fields)


def test_chunks_are_joined():
    chunks = [
        chunk("a b", max_new_tokens=7, truncated=2, alternatives=(chunk("x"),)),
        chunk("c", stopped="length", alternatives=(chunk("y"), chunk("z"))),
    ]
    joined = join_chunks(chunks)
    assert (joined.text, joined.score, joined.stopped, joined.max_new_tokens) == ("a b c", -2.0, "length", 9)
    assert (joined.truncated, joined.chunks, joined.tokens) == (2, 2, ("a b", "c"))
    assert [other.text for other in joined.alternatives] == ["x y"]
    assert join_chunks(chunks[:1]) is chunks[0]


def test_json_has_all_fields():
    values = chunk("a", alignment=((0, 0),), alternatives=(chunk("b"),)).as_json()
    assert set(values) == {
        "text",
        "score",
        "stopped",
        "max_new_tokens",
        "truncated",
        "chunks",
        "tokens",
        "token_scores",
        "alignment",
        "alternatives",
    }
    assert values["alignment"] == [[0, 0]]
    assert values["alternatives"][0]["text"] == "b"
    assert set(EMPTY_TRANSLATION.as_json()) == set(values) - {"alignment", "alternatives"}
