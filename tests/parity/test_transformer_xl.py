"""Transformer-XL against the numbers that transformers 4.35.2 gave (make_transformer_xl.py wrote them down)."""

from pathlib import Path

import pytest
import torch
from parity.oracle import distance, dropout_as_factor
from parity.test_parity import EXACT
from safetensors.torch import load_file

from regard.checkpoint.load import Table, _spelt_out, load
from regard.checkpoint.report import Fate
from regard.checkpoint.save import save
from regard.families.registry import FAMILIES
from regard.transformer.block import Block

FOLDER = Path(__file__).parent / "transformer_xl"
CASES = sorted(path.name for path in FOLDER.iterdir())


@pytest.fixture(params=CASES)
def case(request):
    network, report = load(FOLDER / request.param)
    return network, report, load_file(FOLDER / request.param / "expected.safetensors")


def said(network, output):
    return output.hidden if network.head is None else output.logits


def segments(expected):
    return expected["tokens"][:, :4], expected["tokens"][:, 4:]


def test_every_class_is_there():
    assert {name.split("-")[0] for name in CASES} == set(FAMILIES["transfo-xl"].architectures)


def test_same_numbers_over_two_segments(case):
    network, _, expected = case
    memory = network.new_cache()
    seen = []
    for module in network.modules():
        if isinstance(module, Block):
            module.register_forward_hook(lambda _, __, x: seen.append(x))
    for part, tokens in enumerate(segments(expected)):
        seen.clear()
        with torch.no_grad():
            output = network(tokens, cache=memory)
        assert distance(said(network, output), expected[f"scores.{part}"]) <= EXACT
        for layer, state in enumerate(seen):
            theirs = expected[f"hidden.{part}.{layer + 1}"].flatten(0, 1)
            assert distance(state, theirs) <= EXACT, f"block {layer}"
        for layer, remembered in enumerate(memory.own):
            for row, kept in enumerate(remembered.rows):
                assert distance(kept, expected[f"memory.{part}.{layer}"][row]) <= EXACT


def test_a_first_segment_needs_no_memory_to_be_given(case):
    network, _, expected = case
    with torch.no_grad():
        assert distance(said(network, network(segments(expected)[0])), expected["scores.0"]) <= EXACT


def test_same_gradients_and_step_in_training(case):
    """The key projection learns through the memory, and the past does not."""
    network, report, expected = case
    network.train()
    first, second = segments(expected)
    with dropout_as_factor():
        memory = network.new_cache()
        network(first, cache=memory)
        scores = said(network, network(second, cache=memory)).flatten(0, -2)
        loss = -scores.gather(1, expected["answers"].flatten()[: len(scores), None]).mean()
        loss.backward()
    assert distance(loss, expected["loss"]) <= EXACT
    table = Table(FAMILIES["transfo-xl"], report.origin.architecture, "" if network.head is None else "transformer.")
    places = [place for place in _spelt_out(network, table) if f"after.{place.theirs}" in expected]
    mine = dict(network.named_parameters(remove_duplicate=False))
    compare(places, mine, expected, "gradient", lambda value: value.grad)
    torch.optim.AdamW(network.parameters(), lr=1e-2, eps=1e-4).step()
    compare(places, mine, expected, "after", lambda value: value)
    assert {id(mine[name]) for place in places for name in place.ours} == {id(value) for value in network.parameters()}


def compare(places, mine, expected, what, part):
    for place in places:
        theirs = expected.get(f"{what}.{place.theirs}")
        if theirs is None:
            assert all(part(mine[name]) is None for name in place.ours)
            continue
        for name, tensor in zip(place.ours, place.how.read(theirs, len(place.ours)), strict=True):
            assert distance(part(mine[name]), tensor) <= EXACT, name


def test_rows_of_different_lengths_are_as_alone(case):
    network, _, expected = case
    tokens = expected["tokens"]
    real = torch.ones(2, 7, dtype=torch.bool)
    real[1, :3] = False
    with torch.no_grad():
        both = network(tokens[:, :7], real).hidden
        assert distance(both[0], network(tokens[:1, :7]).hidden[0]) <= EXACT
        assert distance(both[1, 3:], network(tokens[1:, 3:7]).hidden[0]) <= EXACT


def test_memory_rows_are_dropped_copied_and_added(case):
    network, _, expected = case
    first, second = segments(expected)
    with torch.no_grad():
        alone = [network.new_cache(), network.new_cache()]
        for row, memory in enumerate(alone):
            network(first[row : row + 1], cache=memory)
        alone[0].add(alone[1])
        alone[0].reorder([1, 0, 1])
        together = network(second[[1, 0, 1]], cache=alone[0])
    assert distance(said(network, together)[1], expected["scores.1"][0]) <= EXACT
    assert distance(said(network, together)[2], expected["scores.1"][1]) <= EXACT


def test_saved_again_every_tensor_and_key_is_the_same(case, tmp_path):
    network, report, _ = case
    assert save(network, tmp_path, origin=report.origin) == "transfo-xl"
    first, again = load_file(Path(report.folder) / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(tensor, first[name]) for name, tensor in again.items())
    left_out = {line.theirs for line in report.having(Fate.TIED, Fate.IGNORED)}
    assert set(first) - set(again) <= left_out
    assert load(tmp_path)[0].config == network.config


def test_saved_without_its_config_it_is_the_same_network(case, tmp_path):
    network, *_ = case
    assert save(network, tmp_path) == "transfo-xl"
    again, _ = load(tmp_path)
    assert again.config == network.config
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), network.parameters(), strict=True))
