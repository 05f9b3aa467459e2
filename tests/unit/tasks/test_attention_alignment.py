"""Which word comes from which: the plain definition on small tables, and a network whose attention is known."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.checkpoint.save import save
from regard.families.registry import FAMILIES
from regard.tasks.attention_alignment import align, owners, words, written_spans
from regard.tokenization.algorithms import Words
from regard.tokenization.tokenizer_trainer import train
from regard.transformer.network import build

SOURCE = "un chien rouge dort"
LOOKED_AT = [2, 0, 3, 1]
"""The source word that each target word looks at in the network below."""


def test_words_stand_between_spaces():
    assert [" a  bc\td "[start:end] for start, end in words(" a  bc\td ")] == ["a", "bc", "d"]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 4))), st.lists(st.integers(1, 4), max_size=5))
def test_a_span_belongs_to_the_word_it_shares_most_characters_with(starts, lengths):
    spans = [(start, start + length) for start, length in starts]
    of, begin = [], 0
    for length in lengths:
        of.append((begin, begin + length))
        begin += length + 1
    for span, owner in zip(spans, owners(spans, of), strict=True):
        shared = [len(set(range(*span)) & set(range(*word))) for word in of]
        if owner is None:
            assert not any(shared)
        else:
            assert shared[owner] == max(shared) > 0


def test_words_of_several_tokens_add_up():
    """`ab cd` written as a, b, cd, from `xy z` read as x, y, z and an end token that most of the attention goes to."""
    looked = torch.tensor([[0.1, 0.1, 0.15, 0.65], [0.0, 0.2, 0.1, 0.7], [0.1, 0.1, 0.3, 0.5]], dtype=torch.float64)
    spans = [(0, 1), (1, 2), (3, 4), (0, 0)]
    pairs = align(looked, spans, "xy z", [(0, 1), (1, 2), (2, 5)], "ab cd")
    assert pairs == ((0, 0), (1, 1))  # ab: x + y is 0.4, z is 0.25; cd: 0.2 and 0.3


def test_nothing_is_aligned_with_nothing():
    assert align(torch.ones(1, 1), [(0, 0)], "", [(0, 1)], "a") == ()
    assert align(torch.ones(0, 1), [(0, 1)], "a", [], "") == ()


def test_tokens_own_the_characters_they_add():
    texts = {(): "", (1,): "a", (1, 2): "a", (1, 2, 3): "ab c"}
    assert written_spans([1, 2, 3], lambda tokens: texts[tuple(tokens)]) == [(0, 1), (1, 1), (1, 4)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A network in which the word written at step t looks at source word LOOKED_AT[t], and at nothing else.

    Places are almost all of a vector here: one number is large, another one for each place. Target place t and source
    place LOOKED_AT[t] have the same one, so query and key meet. Everything else in the blocks adds nothing.
    """
    place = tmp_path_factory.mktemp("known")
    tokenizer = train(Words(size=60), [SOURCE, "a b c d e f g h"] * 3)
    tokenizer.save(place)
    sizes = dict(
        vocab_size=len(tokenizer), d_model=24, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1,
        decoder_attention_heads=1, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=12, pad_token_id=0,
    )  # fmt: skip
    network = build(FAMILIES["bart"].read(sizes, "BartForConditionalGeneration")[0], seed=4)
    state = network.state_dict()
    for name, value in state.items():
        if name.endswith(("output.weight", "output.bias", "down.weight", "down.bias")) and "blocks" in name:
            value.zero_()
        if "cross_attention.project.query.weight" in name or "cross_attention.project.key.weight" in name:
            value.copy_(4 * torch.eye(24))
    source, target = (state[f"{side}.position.weight"] for side in ("source", "target"))
    offset = len(target) - 12
    for table in (source, target):
        table.zero_()
    for step in range(12):
        target[offset + step, step] = 9.0
        at = LOOKED_AT[step] if step < len(LOOKED_AT) else step
        source[offset + at, step] = 9.0
    network.load_state_dict(state)
    save(network, place)
    ids = {"eos_token_id": 3, "decoder_start_token_id": 2, "suppress_tokens": [0, 1, 2, 3]}
    (place / "generation_config.json").write_text(json.dumps(ids))
    return place


@pytest.mark.parametrize("beam", [1, 3])
def test_a_network_whose_attention_is_known(folder, beam):
    model = regard.load(folder, dtype=torch.float64)
    result = model.translate(SOURCE, beam=beam, n_best=beam, limit=4, alignment=True)[0]
    expected = tuple((word, number) for number, word in enumerate(LOOKED_AT))
    for one in (result, *result.alternatives):
        assert len(one.text.split()) == 4
        assert one.alignment == expected


def test_what_stands_before_the_text_is_no_word_of_it(folder):
    """With a prefix of two words, the steps look at the same places, of which the first two are no words of the text.

    (A target word that looks at the prefix is given to the source word that it looks at most besides.)
    """
    model = regard.load(folder, dtype=torch.float64)
    result = model.translate("rouge dort", prefix="un chien ", limit=4, alignment=True)[0]
    assert {(word - 2, number) for number, word in enumerate(LOOKED_AT) if word > 1} <= set(result.alignment)
    assert {word for word, _ in result.alignment} == {0, 1}


def test_what_a_target_begins_with_is_aligned_with_nothing(folder):
    model = regard.load(folder, dtype=torch.float64)
    result = model.translate(SOURCE, begin="a b", limit=2, alignment=True)[0]
    assert result.text.startswith("a b ")
    assert result.alignment == tuple((LOOKED_AT[step], step) for step in (2, 3))


def test_pieces_of_a_text_are_aligned_with_its_own_words(folder):
    """Three sentences, of which two fit the network's twelve places: words are numbered through the whole text."""
    text = "un chien rouge dort un. chien rouge dort un chien. rouge un dort un chien."
    model = regard.load(folder, dtype=torch.float64)
    result = model.translate(text, limit=4, alignment=True)[0]
    assert result.pieces == 2
    first = [(word, number) for number, word in enumerate(LOOKED_AT)]
    assert list(result.alignment) == [*first, *((10 + word, 4 + number) for word, number in first)]
