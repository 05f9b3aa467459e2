"""Word alignment: its definition on small matrices, and a network whose attention is known."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.checkpoint.save import save
from regard.families.registry import FAMILIES
from regard.tasks.attention_alignment import align, overlapping_words, token_spans, word_spans
from regard.tokenization.algorithms import WordLevel
from regard.tokenization.tokenizer_trainer import train_tokenizer
from regard.transformer.network import build

SOURCE = "un chien rouge dort"
ATTENDED = [2, 0, 3, 1]
"""The source word that each target word attends to in the network below."""


def test_words_are_separated_by_white_space():
    assert [" a  bc\td "[start:end] for start, end in word_spans(" a  bc\td ")] == ["a", "bc", "d"]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 4))), st.lists(st.integers(1, 4), max_size=5))
def test_a_span_belongs_to_the_word_it_shares_most_characters_with(starts, lengths):
    spans = [(start, start + length) for start, length in starts]
    words, start = [], 0
    for length in lengths:
        words.append((start, start + length))
        start += length + 1
    for span, index in zip(spans, overlapping_words(spans, words), strict=True):
        overlaps = [len(set(range(*span)) & set(range(*word))) for word in words]
        if index is None:
            assert not any(overlaps)
        else:
            assert overlaps[index] == max(overlaps) > 0


def test_words_of_several_tokens_add_up():
    """Target `ab cd` of tokens a, b, cd; source `xy z` of tokens x, y, z and EOS, which gets most of the attention."""
    attention = torch.tensor([[0.1, 0.1, 0.15, 0.65], [0.0, 0.2, 0.1, 0.7], [0.1, 0.1, 0.3, 0.5]], dtype=torch.float64)
    spans = [(0, 1), (1, 2), (3, 4), (0, 0)]
    pairs = align(attention, spans, "xy z", [(0, 1), (1, 2), (2, 5)], "ab cd")
    assert pairs == ((0, 0), (1, 1))  # ab: x + y is 0.4, z is 0.25; cd: 0.2 and 0.3


def test_empty_texts_have_no_alignment():
    assert align(torch.ones(1, 1), [(0, 0)], "", [(0, 1)], "a") == ()
    assert align(torch.ones(0, 1), [(0, 1)], "a", [], "") == ()


def test_the_span_of_a_token_is_the_characters_it_adds():
    texts = {(): "", (1,): "a", (1, 2): "a", (1, 2, 3): "ab c"}
    assert token_spans([1, 2, 3], lambda tokens: texts[tuple(tokens)]) == [(0, 1), (1, 1), (1, 4)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A network in which the word generated at step t attends to source word ATTENDED[t] alone.

    Position embeddings dominate the hidden states: each position has one large component. Target position t and source
    position ATTENDED[t] have the same one, so query and key match. All other modules of the blocks output zero.
    """
    path = tmp_path_factory.mktemp("known")
    tokenizer = train_tokenizer(WordLevel(size=60), [SOURCE, "a b c d e f g h"] * 3)
    tokenizer.save(path)
    sizes = dict(
        vocab_size=len(tokenizer), d_model=24, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1,
        decoder_attention_heads=1, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=12, pad_token_id=0,
    )  # fmt: skip
    network = build(FAMILIES["bart"].read_config(sizes, "BartForConditionalGeneration")[0], seed=4)
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
        position = ATTENDED[step] if step < len(ATTENDED) else step
        source[offset + position, step] = 9.0
    network.load_state_dict(state)
    save(network, path)
    ids = {"eos_token_id": 3, "decoder_start_token_id": 2, "suppress_tokens": [0, 1, 2, 3]}
    (path / "generation_config.json").write_text(json.dumps(ids))
    return path


@pytest.mark.parametrize("beam", [1, 3])
def test_a_network_whose_attention_is_known(folder, beam):
    model = regard.load(folder, precision="float64")
    result = model.translate(SOURCE, beam=beam, n_best=beam, max_new_tokens=4, alignment=True)
    expected = tuple((word, number) for number, word in enumerate(ATTENDED))
    for each in (result, *result.alternatives):
        assert len(each.text.split()) == 4
        assert each.alignment == expected


def test_the_source_prefix_is_not_aligned(folder):
    """With a prefix of two words, the first two positions are not words of the text.

    (A target word that attends to the prefix is aligned with the source word that it attends to second.)
    """
    model = regard.load(folder, precision="float64")
    result = model.translate("rouge dort", prefix="un chien ", max_new_tokens=4, alignment=True)
    assert {(word - 2, number) for number, word in enumerate(ATTENDED) if word > 1} <= set(result.alignment)
    assert {word for word, _ in result.alignment} == {0, 1}


def test_the_target_prefix_is_not_aligned(folder):
    model = regard.load(folder, precision="float64")
    result = model.translate(SOURCE, target_prefix="a b", max_new_tokens=2, alignment=True)
    assert result.text.startswith("a b ")
    assert result.alignment == tuple((ATTENDED[step], step) for step in (2, 3))


def test_alignments_of_chunks_have_the_word_indices_of_the_whole_text(folder):
    """Three sentences, of which two fit the network's twelve positions."""
    text = "un chien rouge dort un. chien rouge dort un chien. rouge un dort un chien."
    model = regard.load(folder, precision="float64")
    result = model.translate(text, max_new_tokens=4, alignment=True)
    assert result.chunks == 2
    first = [(word, number) for number, word in enumerate(ATTENDED)]
    assert list(result.alignment) == [*first, *((10 + word, 4 + number) for word, number in first)]
