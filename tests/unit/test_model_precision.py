"""`regard.load` without a precision: float32 on a CPU, a compiled copy for the tasks, the stored type when saving."""

import pytest
import torch
from safetensors.torch import load_file
from unit.cli.runner import run
from unit.tasks import models

import regard
from regard.engine.compiled_copy import weight_versions
from regard.transformer.activation_capture import capture


@pytest.fixture
def folder(tmp_path):
    return models.translating(tmp_path / "model")


def convert(folder, target, precision):
    assert run("convert", folder, target, "--precision", precision).code == 0
    return target


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_files_are_computed_in_float32_and_saved_as_they_were(folder, tmp_path, dtype):
    half = convert(folder, tmp_path / "half", dtype)
    model = regard.load(half)
    assert {each.dtype for each in model.network.parameters()} == {torch.float32}
    model.save(tmp_path / "again")
    stored, saved = (load_file(path / "model.safetensors") for path in (half, tmp_path / "again"))
    assert stored.keys() == saved.keys()
    for name, value in stored.items():
        assert value.dtype == saved[name].dtype == getattr(torch, dtype), name
        assert torch.equal(value, saved[name]), name
    model.save(tmp_path / "wide", precision="float32")
    assert {each.dtype for each in load_file(tmp_path / "wide" / "model.safetensors").values()} == {torch.float32}


def test_what_was_asked_for_is_computed_and_saved(folder, tmp_path):
    half = convert(folder, tmp_path / "half", "float16")
    model = regard.load(half, precision="bfloat16")
    assert {each.dtype for each in model.network.parameters()} == {torch.bfloat16}
    model.save(tmp_path / "again")
    assert {each.dtype for each in load_file(tmp_path / "again" / "model.safetensors").values()} == {torch.bfloat16}


def test_values_that_overflow_float16_give_numbers(folder, tmp_path):
    """A scale of 300 in each norm: float16 overflows, float32 does not."""
    model = regard.load(folder)
    with torch.no_grad():
        for name, value in model.network.named_parameters():
            if "feedforward" in name and value.ndim == 2:
                value.mul_(3000 / value.abs().max())
    model.save(tmp_path / "large", precision="float16")
    assert regard.load(tmp_path / "large").translate("the dog").text is not None
    with pytest.raises(ValueError, match='precision="float32"'):
        regard.load(tmp_path / "large", precision="float16").translate("the dog")


def test_the_tasks_use_a_compiled_copy_made_at_their_first_use(folder):
    model = regard.load(folder)
    assert model.compiled._compiled is None, "nothing is compiled before the first use"
    before = [type(module) for module in model.network.modules()]
    text = model.translate("the dog").text
    compiled = model.inference_network
    assert compiled is not model.network
    assert [type(module) for module in model.network.modules()] == before, "the network itself stays plain"
    model.translate("the cat")
    assert model.inference_network is compiled, "and is compiled once"
    assert text == regard.load(folder, precision="float32").translate("the dog").text


def test_the_copy_follows_training(folder, tmp_path):
    model = regard.load(folder)
    before = model.translate("the dog", n_best=1, beam=2)
    model.network.train()
    optimizer = torch.optim.AdamW(model.network.parameters(), lr=0.3)
    tokens = torch.tensor([[5, 6, 7]])
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model.network(tokens, tokens).logits[0], tokens[0]).backward()
        optimizer.step()
    after = model.translate("the dog", beam=2)
    assert after.score != before.score
    model.save(tmp_path / "trained")
    again = regard.load(tmp_path / "trained").translate("the dog", beam=2)
    assert (again.text, again.score) == (after.text, after.score)


def test_weights_that_are_replaced_are_noticed(folder):
    model = regard.load(folder)
    versions = weight_versions(model.network)
    before = model.inference_network
    model.network.load_state_dict({name: value * 2 for name, value in model.network.state_dict().items()})
    assert weight_versions(model.network) != versions
    assert model.inference_network is not before


def test_the_plain_network_is_used_while_it_has_hooks(folder):
    model = regard.load(folder)
    with capture(model.network, "decoder.blocks.0.cross_attention") as captured:
        text = model.translate("the dog").text
    assert captured["decoder.blocks.0.cross_attention"]
    assert model.translate("the dog").text == text
    assert model.inference_network is not model.network


def test_an_int8_folder_is_used_at_int8_as_the_command_does(folder, tmp_path):
    small = tmp_path / "small"
    assert run("convert", folder, small, "--precision", "int8", "--force").code == 0
    model = regard.load(small)
    expected = regard.load(small, precision="int8").translate("the dog", beam=2)
    found = model.translate("the dog", beam=2)
    assert (found.text, found.score) == (expected.text, expected.score)
    assert run("translate", small, "the dog", "--beam", 2).out == expected.text + "\n"
