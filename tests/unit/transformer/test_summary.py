from dataclasses import replace

import pytest
from unit.transformer.small_networks import (
    ATTENTION,
    BLOCK,
    DESIGNS,
    GATED,
    MODEL,
    POSITIONS,
    ROOM,
    SEGMENTS,
    VOCABULARY,
    WORDS,
    decoder_only,
    encoder_decoder,
    encoder_only,
    shared,
)

from regard.transformer.config import OutputBias, Weights
from regard.transformer.network import build_on_meta
from regard.transformer.summary import count_parameters, module_tree, render_tree

HEADS = {
    "none": None,
    "tied": WORDS,
    "own": replace(WORDS, weights=Weights.OWN),
    "fixed bias": replace(WORDS, bias=OutputBias.FIXED),
}


def trained(network):
    """Number of trainable parameters, each storage counted once."""
    return sum({p.data_ptr(): p.numel() for p in network.parameters() if p.requires_grad}.values())


EVERY_HEAD = [("learned", head) for head in HEADS]
EVERY_POSITION = [(position, "tied") for position in POSITIONS]


@pytest.mark.parametrize(("position", "head"), EVERY_HEAD + EVERY_POSITION)
@pytest.mark.parametrize("kind", DESIGNS)
def test_the_count_is_that_of_the_network_when_it_is_built(kind, position, head):
    design = DESIGNS[kind](position, head=HEADS[head])
    network = shared(design)
    assert count_parameters(design) == module_tree(network).num_parameters == trained(network)


def test_the_count_is_the_sum_of_what_the_parts_hold_by_hand():
    heads, kv, dim, inner = 4 * 6, 2 * 6, MODEL, 7
    attention = dim * heads + heads + 2 * (dim * kv + kv) + heads * dim + dim
    block = attention + dim * inner + inner + inner * dim + dim + 2 * 2 * dim
    embedding = (VOCABULARY + SEGMENTS + ROOM + 2) * dim + 2 * dim
    assert count_parameters(encoder_only("learned")) == embedding + 2 * block + dim
    assert count_parameters(encoder_only("learned", head=WORDS)) == embedding + 2 * block + dim + VOCABULARY
    own = replace(WORDS, weights=Weights.OWN, bias=OutputBias.FIXED)
    assert count_parameters(encoder_only("learned", head=own)) == embedding + 2 * block + dim + VOCABULARY * dim


def test_what_is_tied_counts_where_it_is_first():
    root = module_tree(decoder_only(head=WORDS))
    parts = {part.name: part for part in root.children}
    assert parts["embedding"].num_parameters == VOCABULARY * MODEL
    assert parts["head"].num_parameters == VOCABULARY
    assert root.num_parameters == sum(part.num_parameters for part in root.children)


@pytest.mark.parametrize("kind", DESIGNS)
def test_nothing_is_allocated(kind):
    network = build_on_meta(DESIGNS[kind]("learned", head=WORDS))
    tensors = [*network.parameters(), *network.buffers()]
    assert tensors
    assert all(tensor.device.type == "meta" for tensor in tensors)


def test_a_network_too_large_for_any_machine_is_counted():
    huge = replace(ATTENTION, head_dim=100_000)
    design = decoder_only(layers=40, blocks=(replace(BLOCK, attention=huge, feedforward=replace(GATED, dim=10**9)),))
    assert count_parameters(design) > 10**12


def shapes_in(part):
    yield from (shape for _, shape in part.shapes)
    for inner in part.children:
        yield from shapes_in(inner)


@pytest.mark.parametrize("kind", DESIGNS)
def test_every_shape_of_the_network_is_told(kind):
    design = DESIGNS[kind]("buckets", head=WORDS)
    text = render_tree(module_tree(design))
    shapes = set(shapes_in(module_tree(design)))
    assert shapes == {tuple(p.shape) for p in build_on_meta(design).parameters()}
    for shape in shapes:
        assert "×".join(map(str, shape)) in text


def test_it_reads_like_the_network_with_blocks_that_are_alike_told_once():
    text = render_tree(module_tree(decoder_only("learned", head=WORDS, layers=4)))
    lines = text.splitlines()
    assert lines[0] == f"DecoderOnly  {count_parameters(decoder_only('learned', head=WORDS, layers=4)):,}"
    assert any("0…3 Block" in line for line in lines)
    assert sum("attention MultiHeadAttention" in line for line in lines) == 1
    assert any(line.endswith(f"tokens Tokens  {VOCABULARY * MODEL}  weight {VOCABULARY}×{MODEL}") for line in lines)


def test_blocks_that_differ_are_told_apart():
    kinds = (BLOCK, replace(BLOCK, feedforward=GATED))
    text = render_tree(module_tree(decoder_only(layers=4, blocks=kinds)))
    assert [line.split()[-3] for line in text.splitlines() if " Block " in line] == ["0", "1", "2", "3"]


def test_the_blocks_told_as_one_count_as_all_of_them():
    parts = {part.name: part for part in module_tree(encoder_decoder()).children}
    blocks = {part.name: part for part in parts["decoder"].children}["blocks"]
    [merged] = blocks.children
    one = sum(p.numel() for p in shared(encoder_decoder()).decoder.blocks[0].parameters())
    assert (merged.name, merged.num_parameters) == ("0…2", 3 * one)
