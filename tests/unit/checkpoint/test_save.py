"""Saving: a loaded network is written again bit for bit, one of no family in regard's own layout."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn
from unit.checkpoint.folders import (
    ARCHITECTURES,
    change_config,
    config,
    equal_bits,
    network_of,
    one_block,
    random_network,
    same,
    weights,
    write_folder,
)

from regard.checkpoint.load import load
from regard.checkpoint.save import save
from regard.checkpoint.tensor_files import write_tensors
from regard.transformer.config import ALiBi, NormOrder, RMSNorm
from regard.transformer.config_json import to_json

ONE_BLOCK = dict(num_hidden_layers=1)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_loaded_and_saved_again_every_bit_is_the_same(tmp_path, architecture):
    keys = one_block(architecture)
    folder = write_folder(tmp_path / "first", architecture, **keys)
    network, report = load(folder)
    assert same(network, network_of(architecture, **keys))
    assert save(network, tmp_path / "again", origin=report.origin) == config(folder)["model_type"]
    first, again = weights(folder), weights(tmp_path / "again")
    assert first.keys() == again.keys()
    assert all(equal_bits(first[name], again[name]) for name in first)
    assert config(tmp_path / "again") == config(folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_dtype_is_written_as_it_is(tmp_path, dtype):
    folder = write_folder(tmp_path / "first", "GPT2LMHeadModel", dtype=dtype, n_layer=1)
    network, report = load(folder)
    save(network, tmp_path / "again", origin=report.origin)
    first, again = weights(folder), weights(tmp_path / "again")
    assert all(equal_bits(first[name], again[name]) for name in first)
    assert config(tmp_path / "again")["dtype"] == str(dtype).removeprefix("torch.")


def test_odd_values_are_written_as_they_are(tmp_path):
    """NaN with a payload, minus zero, the smallest and the largest value, infinity."""
    network = network_of("BertForMaskedLM", **ONE_BLOCK)
    odd = torch.tensor([0x7FC12345, -0x80000000, 1, 0x7F7FFFFF, 0x7F800000], dtype=torch.int32).view(torch.float32)
    with torch.no_grad():
        network.embedding.norm.bias[:5] = odd
    save(network, tmp_path)
    assert same(load(tmp_path)[0], network)


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
@pytest.mark.parametrize("how", ["load", "save"])
def test_the_config_states_the_type_of_the_tensors(tmp_path, key, how):
    folder = write_folder(tmp_path / "first", dtype=torch.float16, **ONE_BLOCK)
    values = config(folder)
    del values["dtype"]
    (folder / "config.json").write_text(json.dumps({**values, key: "float16"}))
    network, report = load(folder, dtype=torch.float32 if how == "load" else None)
    save(network, tmp_path / "again", origin=report.origin, dtype=torch.float32 if how == "save" else None)
    assert all(tensor.dtype == torch.float32 for tensor in weights(tmp_path / "again").values())
    stated = {config(tmp_path / "again").get(name) for name in ("dtype", "torch_dtype")} - {None}
    assert stated == {"float32"}


def bert(**changes):
    return replace(network_of("BertForMaskedLM").config, **changes)


def with_blocks(design, stack="encoder", **changes):
    blocks = tuple(replace(block, **changes) for block in getattr(design, stack).blocks)
    return replace(design, **{stack: replace(getattr(design, stack), blocks=blocks)})


NO_FAMILY = {
    "bert-with-rms-norm": with_blocks(bert(), norm=RMSNorm(epsilon=1e-5)),
    "bert-with-norms-on-both-sides": with_blocks(bert(), order=NormOrder.BOTH),
    "bert-with-alibi": replace(bert(), encoder=replace(bert().encoder, position=ALiBi())),
    "gpt2-post-norm": with_blocks(network_of("GPT2LMHeadModel").config, "decoder", order=NormOrder.POST),
    "t5-with-norms-on-both-sides": with_blocks(network_of("T5Model").config, order=NormOrder.BOTH),
}


@pytest.mark.parametrize("name", NO_FAMILY)
def test_a_network_of_no_family_is_saved_in_regards_own_layout(tmp_path, name):
    network = random_network(NO_FAMILY[name])
    assert save(network, tmp_path) == "regard"
    assert config(tmp_path)["model_type"] == "regard"
    assert config(tmp_path)["network"] == to_json(NO_FAMILY[name])
    assert set(weights(tmp_path)) == {name for name, _ in network.named_parameters()}
    loaded, report = load(tmp_path)
    assert same(loaded, network)
    assert report.origin is None
    assert save(loaded, tmp_path / "again") == "regard"
    assert same(load(tmp_path / "again")[0], network)


def test_an_origin_that_no_longer_fits_is_not_written(tmp_path):
    """The network differs from the loaded one: its own config is written."""
    _, report = load(write_folder(tmp_path / "first", **ONE_BLOCK))
    other = network_of("BertForMaskedLM", num_hidden_layers=2, layer_norm_eps=1e-6)
    assert save(other, tmp_path / "again", origin=report.origin) == "bert"
    assert config(tmp_path / "again")["num_hidden_layers"] == 2
    assert same(load(tmp_path / "again")[0], other)


def test_an_origin_of_another_family_is_not_written(tmp_path):
    _, report = load(write_folder(tmp_path / "first", **ONE_BLOCK))
    other = network_of("GPT2LMHeadModel")
    assert save(other, tmp_path / "again", origin=report.origin) == "gpt2"
    assert same(load(tmp_path / "again")[0], other)


def test_keys_that_change_nothing_are_written_again(tmp_path):
    folder = write_folder(tmp_path / "first", **ONE_BLOCK)
    change_config(folder, bos_token_id=7, task_specific_params={"summarization": {"prefix": "shorten: "}})
    network, report = load(folder)
    save(network, tmp_path / "again", origin=report.origin)
    assert config(tmp_path / "again") == config(folder)


def test_one_file_replaces_stale_shards(tmp_path):
    folder = write_folder(tmp_path, **ONE_BLOCK)
    write_tensors(folder, weights(folder), max_shard_bytes=4000)
    other = network_of("BertForMaskedLM", seed=1, **ONE_BLOCK)
    save(other, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert same(load(folder)[0], other)


def test_shards_replace_a_stale_file_and_more_shards(tmp_path):
    folder = write_folder(tmp_path, **ONE_BLOCK)
    tensors = weights(folder)
    write_tensors(folder, tensors, max_shard_bytes=4000)
    previous_count = len(list(folder.glob("model-*")))
    write_tensors(folder, tensors, max_shard_bytes=8000)
    shards = sorted(path.name for path in folder.glob("model*"))
    count = len(shards) - 1
    assert 1 < count < previous_count
    assert shards == [
        *(f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)),
        "model.safetensors.index.json",
    ]
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in tensors.values())
    assert set(index["weight_map"]) == set(tensors)
    assert same(load(folder)[0], network_of("BertForMaskedLM", **ONE_BLOCK))


def test_a_network_is_saved_over_the_file_it_was_loaded_from(tmp_path):
    folder = write_folder(tmp_path, **ONE_BLOCK)
    network, report = load(folder)
    with torch.no_grad():
        network.embedding.norm.bias.add_(1)
    save(network, folder, origin=report.origin)
    assert same(load(folder)[0], network)


def test_folders_are_created(tmp_path):
    network = network_of("BertForMaskedLM", **ONE_BLOCK)
    save(network, str(tmp_path / "a" / "b" / "c"))
    assert same(load(tmp_path / "a" / "b" / "c")[0], network)


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "model").write_text("mine")
    with pytest.raises(ValueError, match=rf"{tmp_path / 'model'} is a file: pass a folder"):
        save(network_of("BertForMaskedLM", **ONE_BLOCK), tmp_path / "model")
    assert (tmp_path / "model").read_text() == "mine"


@pytest.mark.parametrize("architecture", ["BertForMaskedLM", "GPT2LMHeadModel"])
def test_parameters_that_are_not_contiguous(tmp_path, architecture):
    network = network_of(architecture)
    stack = network.encoder if architecture.startswith("Bert") else network.decoder
    for layer in (stack.blocks[0].feedforward.up, stack.blocks[1].attention.output):
        layer.weight = nn.Parameter(layer.weight.detach().t().contiguous().t())
        assert not layer.weight.is_contiguous()
    network.embedding.tokens.weight = nn.Parameter(torch.randn(94, 48)[::2, ::2])
    save(network, tmp_path)
    assert same(load(tmp_path)[0], network)


def test_a_loaded_network_that_was_trained_is_saved(tmp_path):
    """The parameters of a loaded network may be views of the file: their current values are written."""
    network, report = load(write_folder(tmp_path / "first", "GPT2LMHeadModel"))
    network.train()
    network(torch.arange(5)[None]).logits.square().mean().backward()
    torch.optim.SGD(network.parameters(), lr=0.1).step()
    save(network.eval(), tmp_path / "again", origin=report.origin)
    assert same(load(tmp_path / "again")[0], network)
    assert not same(load(tmp_path / "first")[0], network)
