"""Weight maps: every entry is used, every parameter has an entry, and each conversion has an inverse."""

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.checkpoint.folders import ARCHITECTURES, equal_bits, family_of, one_block, small

from regard.families.weight_map import (
    Entry,
    Identity,
    InterleavedRotary,
    TensorMapping,
    Transpose,
    TransposedQKV,
    Unsqueeze,
    resolve_entries,
)
from regard.transformer.network import build_on_meta

ARRANGEMENTS = [
    {},
    {"is_decoder": True, "add_cross_attention": True, "tie_word_embeddings": False},
    {"scale_attn_weights": True, "add_cross_attention": True},
    {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 53},
    {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
]
"""Config changes that add or remove parameters, for the families that have these keys."""


@functools.cache
def weight_maps(architecture):
    """Return, for all arrangements of a class, its network and the mappings of each entry of its weight map."""
    family, result = family_of(architecture), []
    published_class = family.architectures[architecture]
    for keys in ARRANGEMENTS:
        if not set(keys) <= set(family.keys):
            continue
        values = {**small(family), **one_block(architecture), **keys}
        network = build_on_meta(family.read_config(values, architecture)[0])
        names = [name for name, _ in network.named_parameters(remove_duplicate=False)]
        entries = (*family.weights(network.config), *published_class.weights)
        prefix = published_class.prefix
        result.append((network, {entry: resolve_entries([entry], prefix, names) for entry in entries}))
    return result


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_parameter_has_an_entry_and_no_name_means_two_parameters(architecture):
    for network, weight_map in weight_maps(architecture):
        parameters, meanings = dict(network.named_parameters(remove_duplicate=False)), {}
        for mapping in (mapping for mappings in weight_map.values() for mapping in mappings):
            ours = [id(parameters[name]) for name in mapping.ours]
            assert meanings.setdefault(mapping.theirs, ours) == ours, mapping
        mapped = {parameter for ours in meanings.values() for parameter in ours}
        assert [name for name, value in network.named_parameters() if id(value) not in mapped] == []


def test_every_entry_of_a_weight_map_is_used():
    entries, used = set(), set()
    for architecture in ARCHITECTURES:
        for _, weight_map in weight_maps(architecture):
            entries |= set(weight_map)
            used |= {entry for entry, mappings in weight_map.items() if mappings}
    assert len(entries) > 100
    assert {f"{entry.theirs} -> {entry.ours}" for entry in entries - used} == set()


MATRICES = st.tuples(st.integers(1, 5), st.integers(1, 5))
SEEDS = st.integers(0, 1000)


def random(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@settings(derandomize=True, deadline=None, max_examples=50)
@given(how=st.sampled_from([Identity(), Transpose()]), shape=MATRICES | st.tuples(st.integers(1, 5)), seed=SEEDS)
def test_round_trip_of_one_tensor(how, shape, seed):
    tensor = random(shape, seed)
    assert equal_bits(how.write(how.read(tensor, 1)), tensor)
    assert equal_bits(how.read(how.write([tensor]), 1)[0], tensor)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(parts=st.integers(1, 4), shape=MATRICES | st.tuples(st.integers(1, 5)), seed=SEEDS)
def test_round_trip_of_several_tensors(parts, shape, seed):
    how, ours = TransposedQKV(), [random(shape, seed + i) for i in range(parts)]
    theirs = how.write(ours)
    assert theirs.shape == ((shape[-1], parts * shape[0]) if len(shape) == 2 else (parts * shape[0],))
    assert all(equal_bits(a, b) for a, b in zip(how.read(theirs, parts), ours, strict=True))
    assert equal_bits(how.write(how.read(theirs, parts)), theirs)


@settings(derandomize=True, deadline=None, max_examples=20)
@given(size=st.integers(1, 9), seed=SEEDS)
def test_round_trip_of_a_vector(size, seed):
    vector = random((size,), seed)
    assert Unsqueeze().write([vector]).shape == (1, size)
    assert equal_bits(Unsqueeze().read(Unsqueeze().write([vector]), 1)[0], vector)
    assert equal_bits(Unsqueeze().write(Unsqueeze().read(vector[None], 1)), vector[None])


@settings(derandomize=True, deadline=None, max_examples=30)
@given(heads=st.integers(1, 4), pairs=st.integers(1, 4), columns=st.none() | st.integers(1, 5), seed=SEEDS)
def test_round_trip_of_rotary_pairs(heads, pairs, columns, seed):
    how, size = InterleavedRotary(heads), (2 * heads * pairs,)
    tensor = random(size if columns is None else (*size, columns), seed)
    assert equal_bits(how.write(how.read(tensor, 1)), tensor)
    assert equal_bits(how.read(how.write([tensor]), 1)[0], tensor)


def test_pairs_become_halves_in_each_head():
    assert InterleavedRotary(2).read(torch.arange(12), 1)[0].tolist() == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]


def test_rows_and_columns_are_exchanged():
    (ours,) = Transpose().read(torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), 1)
    assert ours.tolist() == [[1, 4], [2, 5], [3, 6]]
    assert [part.tolist() for part in TransposedQKV().read(torch.tensor([[1.0, 2.0, 3.0]]), 3)] == [
        [[1]],
        [[2]],
        [[3]],
    ]


def test_an_entry_is_expanded_for_every_block_and_every_tensor():
    entry = Entry("@h.#.mlp", "blocks.#.up", Transpose())
    ours = ["blocks.0.up.weight", "blocks.0.up.bias", "blocks.11.up.weight", "blocks.0.down.weight", "up.weight"]
    assert resolve_entries([entry], "model.", ours) == [
        TensorMapping("model.h.0.mlp.weight", ("blocks.0.up.weight",), Transpose()),
        TensorMapping("model.h.0.mlp.bias", ("blocks.0.up.bias",), Transpose()),
        TensorMapping("model.h.11.mlp.weight", ("blocks.11.up.weight",), Transpose()),
    ]


def test_an_entry_with_several_parts_is_expanded_once():
    entry = Entry("h.#.qkv", ("b.#.q", "b.#.k"), TransposedQKV())
    ours = ["b.3.q.weight", "b.3.k.weight"]
    assert resolve_entries([entry], "", ours) == [
        TensorMapping("h.3.qkv.weight", ("b.3.q.weight", "b.3.k.weight"), TransposedQKV())
    ]


@pytest.mark.parametrize(
    "name", ["blocks.x.up.weight", "blocks.up.weight", "blocks.1.2.up.weight", "blocks.1.upper.weight"]
)
def test_the_wildcard_matches_numbers_only(name):
    assert resolve_entries([Entry("h.#", "blocks.#.up")], "", [name]) == []


def test_an_exact_entry_is_one_tensor():
    entry = Entry("final_logits_bias", "head.bias", Unsqueeze(), exact=True)
    assert resolve_entries([entry], "model.", ["head.bias", "head.bias.weight"]) == [
        TensorMapping("final_logits_bias", ("head.bias",), Unsqueeze())
    ]
