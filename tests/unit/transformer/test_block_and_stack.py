from dataclasses import replace
from itertools import product

import pytest
import torch
from unit.transformer.reference_network import ReferenceNetwork, dense, normalized
from unit.transformer.small_networks import (
    ATTENTION,
    BLOCK,
    CROSS,
    DENSE,
    DESIGNS,
    GATED,
    LAYER_NORM,
    MODEL,
    POSITIONS,
    RMS_NORM,
    close,
    decoder_only,
    dropout_as_factor,
    embedding,
    encoder_decoder,
    encoder_only,
    gradients,
    made,
    numbers,
    randomized,
    shared,
    text,
)

from regard.transformer.attention import AttentionContext, EncoderOutput
from regard.transformer.batch_layout import BatchLayout
from regard.transformer.block import Block
from regard.transformer.config import NormOrder
from regard.transformer.mask import Band, Causal, Everything, Window

PLAIN = ReferenceNetwork(shared(decoder_only()))


def alike(one, other, inputs):
    close(one, other, 1e-11)
    for mine, theirs in zip(gradients(one, inputs), gradients(other, inputs), strict=True):
        close(mine, theirs, 1e-9)


@pytest.mark.parametrize("feedforward", [DENSE, GATED], ids=["dense", "gated"])
@pytest.mark.parametrize("norm", [LAYER_NORM, RMS_NORM], ids=["layer", "rms"])
@pytest.mark.parametrize("order", NormOrder)
@pytest.mark.parametrize("source", [False, True])
def test_a_block_is_its_sublayers_in_order_each_connected(order, norm, feedforward, source):
    design = replace(CROSS, order=order, norm=norm, feedforward=feedforward)
    block = randomized(Block(design, MODEL))
    x, y = numbers(5, MODEL).requires_grad_(), numbers(4, MODEL, seed=1).requires_grad_()
    layout, source_layout = BatchLayout.of([2, 3]), BatchLayout.of([3, 1])
    found = block(x, AttentionContext(layout, Causal()), EncoderOutput(y, source_layout) if source else None)
    sides = zip(x.split([2, 3]), y.split([3, 1]), strict=True)
    expected = [
        PLAIN.blocked(design, block, one, dense(Causal(), len(one)), other if source else None) for one, other in sides
    ]
    alike(found, torch.cat(expected), [x, y, *block.parameters()])


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("kind", DESIGNS)
def test_a_whole_network_is_its_parts_in_order_with_gradients(kind, position):
    network = shared(DESIGNS[kind](position))
    tokens, target = text(7), text(5, seed=1)
    if kind == "both":
        pair = network(tokens[None], target[None]).hidden[0], ReferenceNetwork(network).translated(tokens, target)
    else:
        pair = network(tokens[None]).hidden[0], ReferenceNetwork(network).hidden(tokens)
    alike(*pair, list(network.parameters()))


@pytest.mark.parametrize("layers", [1, 2, 5])
@pytest.mark.parametrize("make", [encoder_only, decoder_only])
def test_kinds_of_block_take_turns_each_with_its_own_mask_and_sizes(make, layers):
    kinds = (
        BLOCK,
        replace(BLOCK, mask=Band(2), feedforward=GATED, order=NormOrder.POST),
        replace(BLOCK, mask=Window(1), attention=replace(ATTENTION, key_value_heads=4)),
    )
    network = made(make("rotary", blocks=kinds, layers=layers))
    tokens = text(7)
    alike(network(tokens[None]).hidden[0], ReferenceNetwork(network).hidden(tokens), list(network.parameters()))


@pytest.mark.parametrize("norm", [None, LAYER_NORM, RMS_NORM], ids=["none", "layer", "rms"])
def test_the_final_norm_stands_after_the_last_block(norm):
    network = made(decoder_only(final_norm=norm))
    tokens = text(5)
    captured = []
    network.decoder.blocks[-1].register_forward_hook(lambda _, __, x: captured.append(x))
    found = network(tokens[None]).hidden[0]
    close(found, captured[0] if norm is None else normalized(norm, network.decoder.final_norm, captured[0]), 1e-12)


def rates(design, **changes):
    """Dropout everywhere, each with a different probability."""
    attention = dict(dropout=0.05, output_dropout=0.11)
    across = dict(dropout=0.17, output_dropout=0.23)
    block = replace(
        CROSS if design is encoder_decoder else BLOCK,
        attention=replace(ATTENTION, **attention),
        cross_attention=replace(CROSS.cross_attention, **across) if design is encoder_decoder else None,
        feedforward=replace(GATED, dropout=0.29, output_dropout=0.37),
        **changes,
    )
    return design("learned", blocks=(block,), final_dropout=0.43)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("order", NormOrder)
@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)
def test_dropout_falls_at_every_site_at_its_own_rate_in_training_alone(design, order, training):
    config = rates(design, order=order)
    if design is encoder_decoder:
        config = replace(config, source=embedding("learned", dropout=0.47), target=replace(config.target, dropout=0.53))
    else:
        config = replace(config, embedding=replace(config.embedding, dropout=0.47))
    network = made(config).train(training)
    tokens, target = text(6), text(4, seed=1)
    plain = ReferenceNetwork(network, training)
    with dropout_as_factor():
        if design is encoder_decoder:
            pair = network(tokens[None], target[None]).hidden[0], plain.translated(tokens, target)
        else:
            pair = network(tokens[None]).hidden[0], plain.hidden(tokens)
    alike(*pair, list(network.parameters()))


def test_layer_dropout_skips_every_block_at_one_in_training_and_none_in_use():
    network = made(decoder_only(layer_dropout=1.0))
    tokens = text(6)
    embedded = PLAIN.embedded(network.config.embedding, network.embedding, tokens)
    skipped = normalized(RMS_NORM, network.decoder.final_norm, embedded)
    close(network.train()(tokens[None]).hidden[0], skipped, 1e-12)
    close(network.eval()(tokens[None]).hidden[0], ReferenceNetwork(network).hidden(tokens), 1e-11)


def test_layer_dropout_throws_for_each_block_on_its_own(monkeypatch):
    """A block is skipped if its random number is below the probability: here blocks 1, 4 and 5 of five run."""
    network = made(decoder_only(layers=5, layer_dropout=0.4)).train()
    throws = iter([0.5, 0.3, 0.0, 0.4, 0.9])
    monkeypatch.setattr(torch, "rand", lambda *_: torch.tensor(next(throws), dtype=torch.float64))
    ran = []
    for layer, block in enumerate(network.decoder.blocks):
        block.register_forward_hook(lambda _, __, ___, layer=layer: ran.append(layer))
    network(text(1, 6))
    assert ran == [0, 3, 4]


@pytest.mark.parametrize("kind", DESIGNS)
def test_recomputing_gives_the_same_bits_and_gradients_dropout_included(kind):
    network = made(rates(DESIGNS[kind])).train()
    tokens, target, real = text(3, 6), text(3, 4, seed=1), torch.ones(3, 6, dtype=torch.bool)
    real[1, 4:] = False
    calls = []
    for block in network.modules():
        if isinstance(block, Block):
            block.register_forward_pre_hook(lambda *_: calls.append(1))

    def run(on):
        network.set_gradient_checkpointing(on)
        calls.clear()
        torch.manual_seed(3)
        hidden = (network(tokens, target, real) if kind == "both" else network(tokens, real)).hidden
        return hidden, gradients(hidden, list(network.parameters())), len(calls)

    (plain, plain_gradients, once), (hidden, found, twice) = run(False), run(True)
    assert twice == 2 * once
    assert torch.equal(hidden, plain)
    for mine, theirs in zip(found, plain_gradients, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(("training", "recompute"), list(product([False, True], repeat=2)))
def test_a_cache_is_used_whether_or_not_the_network_trains_or_recomputes(training, recompute):
    network, tokens = made(decoder_only("learned")), text(2, 5)
    full = network(tokens).hidden
    network.train(training)
    network.set_gradient_checkpointing(recompute)
    cache = network.new_cache()
    with torch.no_grad():
        steps = [network(chunk, cache=cache).hidden for chunk in tokens.split([3, 2], dim=1)]
    assert cache.lengths == (5, 5)
    close(torch.cat(steps, dim=1), full)


def test_a_stack_narrows_its_own_mask_and_never_widens_it():
    network, tokens = shared(decoder_only("learned")), text(2, 6)
    assert torch.equal(network(tokens, Everything()).hidden, network(tokens).hidden)
    close(network(tokens, Causal() | Window(3)).hidden, network(tokens).hidden)
    banded = shared(decoder_only("learned", blocks=(replace(BLOCK, mask=Band(2)),)))
    close(network(tokens, Window(1)).hidden, banded(tokens).hidden)
