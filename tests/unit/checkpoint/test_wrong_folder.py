"""Missing or invalid folders, configs and shards."""

import json
import os

import pytest
from unit.checkpoint.folders import network_of, refusal, same, says, weights, write_folder

import regard
from regard.checkpoint.load import load
from regard.checkpoint.model_folder import CheckpointError
from regard.checkpoint.tensor_files import WEIGHTS_FILE, write_tensors
from regard.files import write_json

INDEX = f"{WEIGHTS_FILE}.index.json"


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "model", num_hidden_layers=1)


@pytest.fixture
def sharded(folder):
    write_tensors(folder, weights(folder), max_shard_bytes=4000)
    return folder


def test_a_folder_that_does_not_exist(tmp_path):
    assert says(
        refusal(tmp_path / "nowhere"),
        "folder FOLDER does not exist",
        "Nothing is downloaded unless requested",
        "download=True",
    )


def test_a_name_of_the_hub_is_not_downloaded():
    assert says(refusal("bert-base-uncased"), "folder FOLDER does not exist", "download=True")


def test_a_file_instead_of_a_folder(folder):
    assert says(refusal(folder / WEIGHTS_FILE), "FOLDER is a file", "pass its folder")


def test_an_empty_folder(tmp_path):
    assert says(refusal(tmp_path), "FOLDER is empty", "config.json", "model.safetensors")


def test_no_config(folder):
    (folder / "config.json").unlink()
    assert says(refusal(folder), "FOLDER/config.json does not exist")


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ["line 1", "invalid JSON"]),
        (b"hidden_size: 24", ["line 1", "invalid JSON"]),
        (b'{\n "hidden_size": 24,\n "vocab_size" 47\n}', ["line 3", "invalid JSON", "':'"]),
        (b'{\n "hidden_size": 24,\n', ["line 3", "invalid JSON"]),
        (b"[1, 2]", ["expected a JSON object", "found list"]),
        (b'"bert"', ["expected a JSON object", "found str"]),
        (b"null", ["expected a JSON object", "found NoneType"]),
        (b"\xff\xfe{\x00}\x00", ["byte 1 is not valid UTF-8"]),
        (b'{"a":' * 100_000, ["nested too deeply"]),
        (b"[" * 100_000, ["nested too deeply"]),
        (b'{"vocab_size": 1' + 5000 * b"0" + b"}", ["5001 digits"]),
    ],
    ids=lambda value: repr(value[:20]) if isinstance(value, bytes) else "",
)
def test_a_config_that_is_no_json(folder, content, parts):
    (folder / "config.json").write_bytes(content)
    assert says(refusal(folder), "FOLDER/config.json", *parts)


def test_a_config_that_is_a_folder(folder):
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    assert says(refusal(folder), "FOLDER/config.json", "cannot be read")


def test_no_weights(folder):
    (folder / WEIGHTS_FILE).unlink()
    message = refusal(folder)
    assert says(
        message, "FOLDER has no weights", "expected model.safetensors", "pytorch_model.bin", "found config.json"
    )


def test_shards_without_an_index(sharded):
    (sharded / INDEX).unlink()
    assert says(refusal(sharded), "FOLDER has no weights", "index", "found config.json, model-00001-of-")


def test_a_missing_shard(sharded):
    (sharded / shards(sharded)[1]).unlink()
    assert says(refusal(sharded), f"FOLDER/{shards(sharded)[1]} is missing", INDEX, "copy all shards")


def shards(folder):
    """The files that an index names, in their order."""
    return list(dict.fromkeys(json.loads((folder / INDEX).read_text())["weight_map"].values()))


def test_a_damaged_shard(sharded):
    path = sharded / shards(sharded)[1]
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-1])
    assert says(refusal(sharded), f"FOLDER/{path.name}", "corrupt", "copy it again")


@pytest.mark.parametrize("outside", ["../x.safetensors", "{tmp}/x.safetensors", "sub/x.safetensors", "..", "", "."])
def test_a_shard_outside_the_folder(sharded, tmp_path, outside):
    """The other file exists and would match."""
    first, outside = shards(sharded)[0], outside.format(tmp=tmp_path)
    (sharded / "sub").mkdir()
    for target in (tmp_path, sharded / "sub"):
        (target / "x.safetensors").write_bytes((sharded / first).read_bytes())
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"] = {k: outside if v == first else v for k, v in index["weight_map"].items()}
    write_json(sharded / INDEX, index)
    assert says(refusal(sharded), "FOLDER", INDEX)


@pytest.mark.parametrize(
    "content", ["{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', '{"weight_map": {"a": ["x"]}}', "[]", "{"]
)
def test_an_invalid_index(sharded, content):
    (sharded / INDEX).write_text(content)
    assert says(refusal(sharded), f"FOLDER/{INDEX}")


def test_an_index_of_nothing(sharded):
    (sharded / INDEX).write_text('{"weight_map": {}}')
    assert says(refusal(sharded), "FOLDER", "1 blocks", "0 tensors")


def test_a_tensor_in_two_shards(sharded):
    (sharded / "model-extra.safetensors").write_bytes((sharded / shards(sharded)[0]).read_bytes())
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"]["extra"] = "model-extra.safetensors"
    write_json(sharded / INDEX, index)
    assert says(refusal(sharded), "FOLDER", "duplicate tensor", shards(sharded)[0], "model-extra.safetensors")


def test_one_file_goes_before_stale_shards(sharded):
    """As in transformers."""
    other = network_of("BertForMaskedLM", seed=1, num_hidden_layers=1)
    write_folder(sharded.parent / "other", seed=1, num_hidden_layers=1)
    (sharded / WEIGHTS_FILE).write_bytes((sharded.parent / "other" / WEIGHTS_FILE).read_bytes())
    assert same(load(sharded)[0], other)


def test_a_link_to_itself_beside_the_weights(tmp_path):
    folder = write_folder(tmp_path, num_hidden_layers=1)
    (folder / "loop").symlink_to("loop")
    (folder / "tokenizer_x").symlink_to("loop")
    regard.load(folder, precision="float32")
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("config.json")
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read"):
        regard.load(folder)


def test_a_config_that_is_a_pipe(tmp_path):
    folder = write_folder(tmp_path, num_hidden_layers=1)
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read: is a pipe"):
        regard.load(folder)
