"""`pytorch_model.bin`: loaded if it contains only tensors, rejected otherwise, and never executed."""

import os
import pickle
import warnings
from collections import OrderedDict

import pytest
import torch
from torch import nn
from unit.checkpoint.folders import network_of, refusal, same, says, weights, write_bytes, write_folder, write_pickle

from regard.checkpoint.load import load
from regard.checkpoint.save import save
from regard.files import write_json

FILE = "FOLDER/pytorch_model.bin"
ONE_BLOCK = dict(num_hidden_layers=1)
FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "model", **ONE_BLOCK)


def write_as_pickle(folder, change, zipped=True):
    """Write the weights of a folder as a pickle, after `change`."""
    write_pickle(folder, change(weights(folder)), _use_new_zipfile_serialization=zipped)
    return folder


@FORMATS
@pytest.mark.parametrize(
    "form",
    [dict, OrderedDict, lambda tensors: {name: nn.Parameter(value) for name, value in tensors.items()}],
    ids=["dict", "ordered", "parameters"],
)
def test_tensors_are_read(folder, form, zipped):
    network, report = load(write_as_pickle(folder, form, zipped))
    assert same(network, network_of("BertForMaskedLM", **ONE_BLOCK))
    assert all(value.is_leaf and value.requires_grad for value in network.parameters())
    assert not report.newly_initialized


@FORMATS
def test_shards_are_read(folder, zipped):
    tensors = weights(folder)
    (folder / "model.safetensors").unlink()
    names = {name: f"pytorch_model-0000{1 + i % 2}-of-00002.bin" for i, name in enumerate(tensors)}
    for shard in sorted(set(names.values())):
        part = {name: tensors[name] for name in tensors if names[name] == shard}
        torch.save(part, folder / shard, _use_new_zipfile_serialization=zipped)
    write_json(folder / "pytorch_model.bin.index.json", {"metadata": {}, "weight_map": names})
    assert same(load(folder)[0], network_of("BertForMaskedLM", **ONE_BLOCK))


def test_safetensors_goes_before_a_pickle(folder):
    torch.save({"other": torch.ones(3)}, folder / "pytorch_model.bin")
    assert same(load(folder)[0], network_of("BertForMaskedLM", **ONE_BLOCK))


@FORMATS
def test_views_of_one_storage_are_read_and_saved(folder, tmp_path, zipped):
    def views(tensors):
        ends = torch.tensor([value.numel() for value in tensors.values()]).cumsum(0)[:-1]
        flat = torch.cat([value.flatten() for value in tensors.values()])
        parts = flat.tensor_split(ends)
        return {name: part.view(value.shape) for (name, value), part in zip(tensors.items(), parts, strict=True)}

    network, report = load(write_as_pickle(folder, views, zipped))
    assert same(network, network_of("BertForMaskedLM", **ONE_BLOCK))
    save(network, tmp_path / "again", origin=report.origin)
    assert same(load(tmp_path / "again")[0], network)


def test_one_tensor_under_two_names_becomes_two_parameters(tmp_path):
    folder = write_folder(tmp_path / "model", "LlamaForCausalLM")
    norm = "model.layers.{}.input_layernorm.weight".format
    network, report = load(write_as_pickle(folder, lambda tensors: {**tensors, norm(1): tensors[norm(0)]}))
    first, second = (block.attention_residual.norm.weight for block in network.decoder.blocks)
    assert torch.equal(first, second)
    assert first.data_ptr() != second.data_ptr()
    save(network, tmp_path / "again", origin=report.origin)


class Evil:
    """Unpickled, it creates a file."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def test_the_marker_works(tmp_path):
    pickle.loads(pickle.dumps(Evil(tmp_path / "marker")))
    assert (tmp_path / "marker").exists()


@FORMATS
@pytest.mark.parametrize("where", ["beside", "instead", "nested", "key"])
def test_code_is_not_executed(folder, tmp_path, where, zipped):
    evil = Evil(tmp_path / "marker")
    change = {
        "beside": lambda tensors: {**tensors, "evil": evil},
        "instead": lambda tensors: evil,
        "nested": lambda tensors: {**tensors, "evil": [{"evil": (evil,)}]},
        "key": lambda tensors: {**tensors, evil: torch.ones(1)},
    }[where]
    assert says(refusal(write_as_pickle(folder, change, zipped)), FILE, "run code", "refused", "safetensors")
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("protocol", range(6))
def test_a_plain_pickle_is_not_executed(folder, tmp_path, protocol):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil(tmp_path / "marker"), protocol=protocol))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about protocols that it does not write itself
        assert says(refusal(folder), FILE)
    assert not (tmp_path / "marker").exists()


def test_a_pickle_in_a_shard_is_not_executed(folder, tmp_path):
    (folder / "model.safetensors").unlink()
    torch.save({"evil": Evil(tmp_path / "marker")}, folder / "shard.bin")
    write_json(folder / "pytorch_model.bin.index.json", {"weight_map": {"evil": "shard.bin"}})
    assert says(refusal(folder), "FOLDER/shard.bin", "run code", "refused")
    assert not (tmp_path / "marker").exists()


@FORMATS
def test_a_pickle_cut_off_anywhere_is_refused(folder, zipped):
    path = write_as_pickle(folder, dict, zipped) / "pytorch_model.bin"
    content = path.read_bytes()
    wrong = {}
    for cut in [*range(8), *range(8, 2600, 37), *range(2600, len(content), 499), len(content) - 1]:
        write_bytes(path, content[:cut])
        try:
            assert says(refusal(folder), FILE)
        except Exception as error:
            wrong[cut] = repr(error)
    assert not wrong


@pytest.mark.parametrize("content", [b"hello world", b"PK\x03\x04 and no more", bytes(1000), b"\x80\x02."])
def test_another_kind_of_file_is_refused(folder, content):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(content)
    assert says(refusal(folder), FILE)


@FORMATS
@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: list(tensors.values()),
        lambda tensors: next(iter(tensors.values())),
        lambda tensors: None,
        lambda tensors: {"state_dict": tensors, "epoch": 3},
        lambda tensors: {**tensors, "epoch": 3},
    ],
    ids=["list", "tensor", "nothing", "training-state", "number-among-tensors"],
)
def test_something_else_than_a_dictionary_of_tensors_is_refused(folder, change, zipped):
    assert says(refusal(write_as_pickle(folder, change, zipped)), FILE, "expected a dictionary of tensors")


def test_the_message_names_what_was_found(folder):
    assert says(
        refusal(write_as_pickle(folder, lambda tensors: {"state_dict": tensors, "epoch": 3})), FILE, "state_dict"
    )


def test_tensors_without_names_are_refused(folder):
    assert says(refusal(write_as_pickle(folder, lambda tensors: dict(enumerate(tensors.values())))), FILE)


def test_sparse_tensors_are_refused(folder):
    name = "bert.embeddings.word_embeddings.weight"
    message = refusal(write_as_pickle(folder, lambda tensors: {**tensors, name: tensors[name].to_sparse()}))
    assert says(message, "FOLDER", name)
