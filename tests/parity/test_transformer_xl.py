"""Transformer-XL against stored outputs of transformers 4.35.2 (written by make_transformer_xl.py)."""

from pathlib import Path

import pytest
import torch
from parity.oracle import distance, dropout_as_factor
from parity.test_parity import EXACT
from safetensors.torch import load_file

from regard.checkpoint.load import CheckpointLayout, _expand_entries, load
from regard.checkpoint.report import LoadStatus
from regard.checkpoint.save import save
from regard.families.registry import FAMILIES
from regard.transformer.block import Block

FOLDER = Path(__file__).parent / "transformer_xl"
CASES = sorted(path.name for path in FOLDER.iterdir())


@pytest.fixture(params=CASES)
def case(request):
    network, report = load(FOLDER / request.param)
    return network, report, load_file(FOLDER / request.param / "expected.safetensors")


def result(network, output):
    return output.hidden if network.head is None else output.logits


def segments(expected):
    return expected["tokens"][:, :4], expected["tokens"][:, 4:]


def test_every_class_has_a_case():
    assert {name.split("-")[0] for name in CASES} == set(FAMILIES["transfo-xl"].architectures)


def test_same_numbers_over_two_segments(case):
    network, _, expected = case
    memory = network.new_cache()
    block_outputs = []
    for module in network.modules():
        if isinstance(module, Block):
            module.register_forward_hook(lambda _, __, x: block_outputs.append(x))
    for part, tokens in enumerate(segments(expected)):
        block_outputs.clear()
        with torch.no_grad():
            output = network(tokens, cache=memory)
        assert distance(result(network, output), expected[f"scores.{part}"]) <= EXACT
        for layer, state in enumerate(block_outputs):
            theirs = expected[f"hidden.{part}.{layer + 1}"].flatten(0, 1)
            assert distance(state, theirs) <= EXACT, f"block {layer}"
        for layer, layer_memory in enumerate(memory.layers):
            for row, hidden in enumerate(layer_memory.hidden):
                assert distance(hidden, expected[f"memory.{part}.{layer}"][row]) <= EXACT


def test_a_first_segment_needs_no_memory(case):
    network, _, expected = case
    with torch.no_grad():
        assert distance(result(network, network(segments(expected)[0])), expected["scores.0"]) <= EXACT


def test_same_gradients_and_step_in_training(case):
    """The gradient reaches the key projection through the memory, but not the past."""
    network, report, expected = case
    network.train()
    first, second = segments(expected)
    with dropout_as_factor():
        memory = network.new_cache()
        network(first, cache=memory)
        scores = result(network, network(second, cache=memory)).flatten(0, -2)
        loss = -scores.gather(1, expected["answers"].flatten()[: len(scores), None]).mean()
        loss.backward()
    assert distance(loss, expected["loss"]) <= EXACT
    layout = CheckpointLayout(
        FAMILIES["transfo-xl"], report.origin.architecture, "" if network.head is None else "transformer."
    )
    mappings = [mapping for mapping in _expand_entries(network, layout) if f"after.{mapping.theirs}" in expected]
    parameters = dict(network.named_parameters(remove_duplicate=False))
    compare(mappings, parameters, expected, "gradient", lambda value: value.grad)
    torch.optim.AdamW(network.parameters(), lr=1e-2, eps=1e-4).step()
    compare(mappings, parameters, expected, "after", lambda value: value)
    compared = {id(parameters[name]) for mapping in mappings for name in mapping.ours}
    assert compared == {id(value) for value in network.parameters()}


def compare(mappings, parameters, expected, prefix, select):
    for mapping in mappings:
        theirs = expected.get(f"{prefix}.{mapping.theirs}")
        if theirs is None:
            assert all(select(parameters[name]) is None for name in mapping.ours)
            continue
        for name, tensor in zip(mapping.ours, mapping.how.read(theirs, len(mapping.ours)), strict=True):
            assert distance(select(parameters[name]), tensor) <= EXACT, name


def test_sequences_of_different_lengths_are_as_alone(case):
    network, _, expected = case
    tokens = expected["tokens"]
    real = torch.ones(2, 7, dtype=torch.bool)
    real[1, :3] = False
    with torch.no_grad():
        batched = network(tokens[:, :7], real).hidden
        assert distance(batched[0], network(tokens[:1, :7]).hidden[0]) <= EXACT
        assert distance(batched[1, 3:], network(tokens[1:, 3:7]).hidden[0]) <= EXACT


def test_memory_rows_are_dropped_copied_and_added(case):
    network, _, expected = case
    first, second = segments(expected)
    with torch.no_grad():
        memories = [network.new_cache(), network.new_cache()]
        for row, memory in enumerate(memories):
            network(first[row : row + 1], cache=memory)
        memories[0].append_rows(memories[1])
        memories[0].reorder([1, 0, 1])
        output = network(second[[1, 0, 1]], cache=memories[0])
    assert distance(result(network, output)[1], expected["scores.1"][0]) <= EXACT
    assert distance(result(network, output)[2], expected["scores.1"][1]) <= EXACT


def test_saved_again_every_tensor_and_key_is_the_same(case, tmp_path):
    network, report, _ = case
    assert save(network, tmp_path, origin=report.origin) == "transfo-xl"
    first, again = load_file(Path(report.folder) / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(tensor, first[name]) for name, tensor in again.items())
    unsaved = {line.theirs for line in report.with_status(LoadStatus.TIED, LoadStatus.IGNORED)}
    assert set(first) - set(again) <= unsaved
    assert load(tmp_path)[0].config == network.config


def test_saved_without_its_config_it_is_the_same_network(case, tmp_path):
    network, *_ = case
    assert save(network, tmp_path) == "transfo-xl"
    again, _ = load(tmp_path)
    assert again.config == network.config
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), network.parameters(), strict=True))
