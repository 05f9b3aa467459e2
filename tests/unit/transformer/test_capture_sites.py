"""Sites beside the weights, and addresses with `*`."""

import pytest
import torch
from unit.transformer.small_networks import DESIGNS, POSITIONS, close, made, packed, shared, text

from regard.engine import compile
from regard.transformer.activation_capture import attention_addresses, capture
from regard.transformer.attention_sites import SITES

LENGTHS, TARGET_LENGTHS = (3, 1, 4, 4), (2, 5, 1, 3)


def all_addresses(network):
    return [f"{attention}.{site}" for attention in attention_addresses(network) for site in SITES]


def run(network, kind):
    tokens, layout = packed([text(n, seed=n) for n in LENGTHS])
    target, target_layout = packed([text(n, seed=10 + n) for n in TARGET_LENGTHS])
    if kind == "both":
        return network(tokens, target, layout=layout, target_layout=target_layout)
    return network(tokens, layout=layout)


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("kind", DESIGNS)
def test_weights_values_and_output_belong_together(kind, position):
    """output = (weights · value, heads joined) · output matrix, for every sequence of every attention."""
    network = shared(DESIGNS[kind](position))
    with torch.no_grad(), capture(network, *all_addresses(network)) as activations:
        run(network, kind)
    for address in attention_addresses(network):
        output = network.get_submodule(address).output
        weights, value, outputs = (activations[f"{address}.{site}"] for site in ("weights", "value", "output"))
        assert len(weights) == len(LENGTHS)
        for one_weights, one_value, one_output in zip(weights, value, outputs, strict=True):
            grouped = one_value.repeat_interleave(len(one_weights) // len(one_value), dim=0)
            close(output((one_weights @ grouped).transpose(0, 1).flatten(1)), one_output)


@pytest.mark.parametrize("position", ["none", "halves"])
def test_weights_are_the_softmax_of_query_and_key(position):
    network = shared(DESIGNS["decoder"](position))
    with torch.no_grad(), capture(network, "decoder.blocks.*.attention.*") as activations:
        run(network, "decoder")
    for address in attention_addresses(network):
        scale = network.get_submodule(address).kernel.scale
        for query, key, weights in zip(
            *(activations[f"{address}.{s}"] for s in ("query", "key", "weights")), strict=True
        ):
            scores = query @ key.repeat_interleave(len(query) // len(key), dim=0).transpose(1, 2) * scale
            visible = torch.ones(scores.shape[1:], dtype=torch.bool).tril()
            close(scores.masked_fill(~visible, -torch.inf).softmax(dim=-1), weights)


def test_with_a_cache_keys_are_those_of_all_tokens_so_far():
    network, cache = shared(DESIGNS["decoder"]("none")), None
    tokens, layout = packed([text(5, seed=1)])
    with torch.no_grad(), capture(network, "decoder.blocks.0.attention.*") as whole:
        network(tokens, layout=layout)
    cache = network.new_cache()
    with torch.no_grad():
        network(tokens[None, :3], cache=cache)
        with capture(network, "decoder.blocks.0.attention.*") as step:
            network(tokens[None, 3:], cache=cache)
    for site, last in (("key", slice(None)), ("value", slice(None)), ("query", slice(3, None))):
        close(step[f"decoder.blocks.0.attention.{site}"][0], whole[f"decoder.blocks.0.attention.{site}"][0][:, last])
    close(step["decoder.blocks.0.attention.output"][0], whole["decoder.blocks.0.attention.output"][0][3:])


def test_a_star_is_one_part_of_an_address():
    network = shared(DESIGNS["both"]("none"))
    with capture(network, "decoder.blocks.*.cross_attention.weights", "encoder.blocks.0.attention") as activations:
        run(network, "both")
    layers = len(network.decoder.blocks)
    expected = [f"decoder.blocks.{layer}.cross_attention.weights" for layer in range(layers)]
    assert list(activations) == [*expected, "encoder.blocks.0.attention"]
    with pytest.raises(ValueError, match=r"nothing to capture at 'decoder\.\*'"), capture(network, "decoder.*"):
        pass


def test_an_address_without_a_site_is_that_of_the_weights():
    network = shared(DESIGNS["decoder"]("none"))
    with capture(network, "decoder.blocks.0.attention", "decoder.blocks.0.attention.weights") as activations:
        run(network, "decoder")
    short, full = activations.values()
    assert all(map(torch.equal, short, full))


def test_a_misspelt_site_is_an_error_with_a_suggestion():
    network = shared(DESIGNS["decoder"]("none"))
    wrong = "decoder.blocks.0.attention.weight"
    with pytest.raises(ValueError, match=r"attention\.weight' \(did you mean '.*attention\.weights'\?\); this"):
        capture(network, wrong).__enter__()


def test_sites_of_a_compiled_network():
    network = made(DESIGNS["both"]("none")).float()
    addresses = [address for address in all_addresses(network) if address.startswith("decoder")]
    found = []
    for one in (network, compile(network)):
        with torch.no_grad(), capture(one, *addresses) as activations:
            run(one, "both")
        found.append(activations)
    assert {address.rpartition(".")[2] for address in addresses} == set(SITES)
    for address in addresses:
        for plain, compiled in zip(found[0][address], found[1][address], strict=True):
            torch.testing.assert_close(plain.float(), compiled.float(), rtol=1e-4, atol=1e-5)


def test_capturing_changes_no_bit_of_the_output():
    network = shared(DESIGNS["both"]("buckets"))
    with torch.no_grad():
        alone = run(network, "both").hidden
        with capture(network, *all_addresses(network)):
            assert torch.equal(run(network, "both").hidden, alone)
