import importlib
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from unit.transformer.reference_network import ReferenceNetwork, dense
from unit.transformer.small_networks import (
    ATTENTION,
    BLOCK,
    CROSS,
    DESIGNS,
    POSITIONS,
    chances,
    close,
    decoder_only,
    encoder_decoder,
    encoder_only,
    gradients,
    made,
    packed,
    shared,
    text,
)

from regard.transformer.activation_capture import attention_addresses, capture
from regard.transformer.attention import MultiHeadAttention
from regard.transformer.mask import Explicit


@contextmanager
def entering(network):
    """Record the inputs of each attention: its hidden states, and those it attends to."""
    inputs_of, handles = {}, []
    for address in attention_addresses(network):

        def note(_, given, address=address):
            inputs_of[address] = (given[0], given[2].hidden if address.endswith("cross_attention") else given[0])

        handles.append(network.get_submodule(address).register_forward_pre_hook(note))
    yield inputs_of
    for handle in handles:
        handle.remove()


def design_of(network, address):
    side, _, layer, which = address.split(".")
    stack = getattr(network.config, side)
    return stack, stack.blocks[int(layer) % len(stack.blocks)], which


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("kind", DESIGNS)
def test_the_weights_at_every_address_are_the_definition(kind, position):
    """Sequences of different lengths, grouped heads; computed from the inputs of the attention and its projections."""
    network = shared(DESIGNS[kind](position))
    lengths, target_lengths = (3, 1, 4, 4), (2, 5, 1, 3)
    tokens, layout = packed([text(n, seed=n) for n in lengths])
    target, target_layout = packed([text(n, seed=10 + n) for n in target_lengths])

    with torch.no_grad(), capture(network) as captured, entering(network) as inputs_of:
        if kind == "both":
            network(tokens, target, layout=layout, target_layout=target_layout)
        else:
            network(tokens, layout=layout)
    assert list(captured) == attention_addresses(network)
    for address, found in captured.items():
        stack, block, which = design_of(network, address)
        x, y = inputs_of[address]
        asks = target_lengths if kind == "both" and address.startswith("decoder") else lengths
        answers = lengths if which == "cross_attention" else asks
        assert len(found) == len(asks)
        for mine, one, other in zip(found, x.split(asks), y.split(answers), strict=True):
            design, module = getattr(block, which), network.get_submodule(address)
            plain = ReferenceNetwork(network)
            if which == "cross_attention":
                expected = plain.weights(design, module, one, other)
            else:
                side = network.get_submodule(address.split(".")[0])
                position_of = plain.positioned(stack, side, len(one))
                expected = plain.weights(design, module, one, one, dense(stack.mask, len(one)), *position_of)
            close(mine, expected.detach(), 1e-11)


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("make", [decoder_only, encoder_decoder], ids=["decoder", "both"])
@torch.no_grad()
def test_with_a_cache_the_weights_are_those_of_each_row_alone(make, position):
    network, chunks = shared(make(position)), [(2, 1, 3), (1, 1, 1), (1, 3, 3)]
    texts = [text(sum(chunk[row] for chunk in chunks), seed=row) for row in range(3)]
    sources = [text(n, seed=20 + n) for n in (4, 2, 3)]
    alone = []
    for row, source in zip(texts, sources, strict=True):
        with capture(network) as captured:
            network(source[None], row[None]) if make is encoder_decoder else network(row[None])
        alone.append(captured)
    cache, done = network.new_cache(), [0, 0, 0]
    tokens, layout = packed(sources)
    for chunk in chunks:
        new, new_rows = packed([row[at : at + n] for row, at, n in zip(texts, done, chunk, strict=True)])
        with capture(network) as captured:
            if make is encoder_decoder:
                network(network.encode(tokens, layout=layout), new, target_layout=new_rows, cache=cache)
            else:
                network(new, layout=new_rows, cache=cache)
        for row, (start, n) in enumerate(zip(done, chunk, strict=True)):
            for address, [full] in alone[row].items():
                if address.startswith("decoder"):
                    keys = full.shape[2] if address.endswith("cross_attention") else start + n
                    full = full[:, start : start + n, :keys]
                close(captured[address][row], full)
        done = [at + n for at, n in zip(done, chunk, strict=True)]


def test_each_row_and_call_has_its_weights_in_order():
    network = shared(decoder_only("learned"))
    with capture(network, "decoder.blocks.1.attention") as captured:
        network(text(2, 3))
        network(text(1, 5))
    [found] = captured.values()
    assert [tuple(w.shape) for w in found] == [(4, 3, 3), (4, 3, 3), (4, 5, 5)]
    with capture(network, "decoder.blocks.1.attention") as again:
        network(text(1, 5))
    assert torch.equal(again["decoder.blocks.1.attention"][0], found[2])


def training(design):
    block = replace(CROSS if design is encoder_decoder else BLOCK, attention=replace(ATTENTION, dropout=0.3))
    return made(design("learned", blocks=(block,))).train()


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("kind", DESIGNS)
def test_watching_changes_no_bit_of_outputs_or_gradients(kind, mode):
    network = training(DESIGNS[kind]).train(mode == "train")
    tokens, real = text(3, 6), torch.ones(3, 6, dtype=torch.bool)
    real[1, 3:] = False

    def run():
        torch.manual_seed(1)
        output = network(tokens, tokens, real) if kind == "both" else network(tokens, real)
        return [output.hidden, *gradients(output.hidden, list(network.parameters()))]

    plain = run()
    with capture(network) as captured:
        watched = run()
    assert all(captured.values())
    assert all(torch.equal(one, other) for one, other in zip(plain, watched, strict=True))
    assert not any(weights.requires_grad for found in captured.values() for weights in found)


def test_only_what_is_watched_is_computed(monkeypatch):
    calls = []
    module = importlib.import_module("regard.transformer.attention_sites")
    compute = module.attention_weights
    monkeypatch.setattr(module, "attention_weights", lambda *args: (calls.append(1), compute(*args))[1])
    network = shared(encoder_decoder())

    def run(*addresses):
        calls.clear()
        with capture(network, *addresses) as captured:
            network(text(2, 4), text(2, 3))
        assert all(captured.values())
        return list(captured), len(calls)

    assert run("decoder.blocks.1.cross_attention") == (["decoder.blocks.1.cross_attention"], 1)
    assert run("encoder.blocks.0.attention", "decoder.blocks.2.attention")[1] == 2
    assert run()[1] == 2 + 3 * 2
    calls.clear()
    network(text(2, 4), text(2, 3))
    assert not calls


def test_after_watching_nothing_is_collected_even_after_an_error():
    network = made(decoder_only())

    def fail():
        with capture(network) as captured:
            network(text(1, 4))
            cache.append(captured)
            raise KeyError

    cache = []
    with pytest.raises(KeyError):
        fail()
    before = {address: len(found) for address, found in cache[0].items()}
    network(text(1, 4))
    assert {address: len(found) for address, found in cache[0].items()} == before == dict.fromkeys(before, 1)
    assert not any(module._forward_hooks for module in network.modules())


def test_addresses_go_from_the_first_block_to_the_last():
    assert attention_addresses(shared(decoder_only())) == ["decoder.blocks.0.attention", "decoder.blocks.1.attention"]
    assert attention_addresses(shared(encoder_decoder()))[1:4] == [
        "encoder.blocks.1.attention",
        "decoder.blocks.0.attention",
        "decoder.blocks.0.cross_attention",
    ]


def test_an_unknown_address_is_an_error_that_lists_the_known_ones():
    network = shared(decoder_only())
    with (
        pytest.raises(
            ValueError, match=r"'decoder.blocks.2.attention' .*; this network has decoder.blocks.0.attention, "
        ),
        capture(network, "decoder.blocks.0.attention", "decoder.blocks.2.attention"),
    ):
        pass
    assert not any(module._forward_hooks for module in network.modules())


def test_keys_at_the_end_that_nobody_sees_are_shown_with_weight_zero():
    network = shared(encoder_only("learned"))
    seen_by = chances(1, 5, 5)
    seen_by[:, :, 3:] = False
    with capture(network, "encoder.blocks.0.attention") as captured:
        network(text(1, 5), Explicit(seen_by))
    [found] = captured["encoder.blocks.0.attention"]
    assert found.shape == (4, 5, 5)
    assert bool((found[:, ~seen_by[0]] == 0).all())


@pytest.mark.parametrize("kind", DESIGNS)
def test_on_the_path_of_a_gpu_the_weights_are_over_the_tokens_of_the_row_too(kind, monkeypatch):
    network = shared(DESIGNS[kind]("buckets"))
    tokens, layout = packed([text(n, seed=n) for n in (3, 1, 4)])
    target, target_layout = packed([text(n, seed=n) for n in (2, 4, 1)])

    def run():
        with capture(network) as captured:
            if kind == "both":
                network(tokens, target, layout=layout, target_layout=target_layout)
            else:
                network(tokens, layout=layout)
        return captured

    expected = run()
    monkeypatch.setattr(MultiHeadAttention, "_attend_packed", MultiHeadAttention._attend_padded)
    for address, found in run().items():
        for mine, theirs in zip(found, expected[address], strict=True):
            close(mine, theirs)


@torch.no_grad()
def test_rows_that_share_a_source_are_watched_one_by_one():
    """Beams: two sources with two beams each, targets of different lengths."""
    network = shared(encoder_decoder("rotary"))
    address, sources = "decoder.blocks.1.cross_attention", [text(4, seed=1), text(2, seed=2)]
    targets = [text(length, seed=length) for length in (3, 1, 2, 5)]
    tokens, layout = packed(sources)
    written, written_rows = packed(targets)
    with capture(network, address) as captured:
        network(network.encode(tokens, layout=layout).repeat_interleave(2), written, target_layout=written_rows)
    for number, (target, found) in enumerate(zip(targets, captured[address], strict=True)):
        with capture(network, address) as alone:
            network(sources[number // 2][None], target[None])
        close(found, alone[address][0])
