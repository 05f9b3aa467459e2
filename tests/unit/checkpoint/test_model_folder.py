"""The files of a model folder: regard.json and its versions, labels, companions, stale files."""

import json
import subprocess
import sys

import pytest
import torch
from unit.checkpoint.folders import change_config, network_of, write_folder

from regard.checkpoint.load import load
from regard.checkpoint.model_folder import CheckpointError, Companions, ModelFolder
from regard.checkpoint.save import save

ONE_BLOCK = dict(num_hidden_layers=1)
RECORD = {"precision": "int8", "quantization_error": None}


def write_info(folder, **values):
    (folder / "regard.json").write_text(json.dumps(values))


def info_of(folder):
    return json.loads((folder / "regard.json").read_text())


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "model", "BertForSequenceClassification", **ONE_BLOCK)


def test_files_are_read_once_and_when_they_are_needed(folder):
    (folder / "regard.json").write_text("{")
    model = ModelFolder(folder)
    assert model.config["model_type"] == "bert"
    (folder / "config.json").unlink()
    assert model.config["model_type"] == "bert"
    assert model.generation_config == {}
    with pytest.raises(CheckpointError, match=r"regard\.json, line 1: invalid JSON"):
        _ = model.info


def test_a_file_without_a_version_is_read_as_before(folder):
    write_info(folder, task="classify", labels=["a", "b"], recipe={"seed": 1})
    assert ModelFolder(folder).info == {"task": "classify", "labels": ["a", "b"], "recipe": {"seed": 1}}
    load(folder)


def test_a_newer_version_is_refused_with_what_to_do(folder):
    write_info(folder, format_version=2)
    message = r"regard\.json: format_version 2 is newer than 1, .*: update regard \(`pip install --upgrade regard`\)"
    with pytest.raises(CheckpointError, match=message):
        load(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"format_version": "1"}, "format_version is '1'; expected an integer"),
        ({"format_version": True}, "format_version is True; expected an integer"),
        ({"labels": "ab"}, "labels is 'ab'; expected a list of label names"),
        ({"labels": ["a", 2]}, r"labels is \['a', 2\]; expected a list of label names"),
    ],
)
def test_wrong_values_are_refused(folder, values, message):
    write_info(folder, **values)
    with pytest.raises(CheckpointError, match=rf"regard\.json: {message}"):
        load(folder)


def test_labels_are_those_of_regard_json_else_of_the_config(folder):
    assert ModelFolder(folder).labels == ()
    change_config(folder, id2label={"10": "c", "9": "b", "0": "a"})
    assert ModelFolder(folder).labels == ("a", "b", "c")
    write_info(folder, labels=["x", "y"])
    assert ModelFolder(folder).labels == ("x", "y")
    (folder / "config.json").unlink()
    assert ModelFolder(folder).labels == ("x", "y")


def test_an_old_quantization_file_is_read_until_the_folder_is_written(folder):
    (folder / "engine.json").write_text(json.dumps(RECORD))
    assert ModelFolder(folder).info == {"quantization": RECORD}
    model = ModelFolder(folder)
    model.write_info({**model.info, "task": "classify"})
    assert info_of(folder) == {"format_version": 1, "quantization": RECORD, "task": "classify"}
    assert model.info == info_of(folder)
    assert not (folder / "engine.json").exists()


def test_companions_are_the_other_files_and_no_record_of_the_weights(folder):
    (folder / "target").mkdir()
    copied = ["added_tokens.json", "generation_config.json", "merges.txt", "source.spm", "target/tokenizer.json"]
    copied += ["target_vocab.json", "tokenizer.json", "tokenizer_config.json", "vocab.json", "vocab.of.another.name"]
    for name in [*copied, "notes.txt", "engine.json", "pytorch_model.bin", "target/notes.txt"]:
        (folder / name).write_text("{}")
    write_info(folder, quantization=RECORD, task="classify", unknown=[1])
    companions = ModelFolder(folder).companions()
    assert sorted(companions.files) == sorted(copied)
    assert companions.info == {"task": "classify", "unknown": [1]}


def test_files_of_another_model_are_removed(folder):
    (folder / "target").mkdir()
    stale = ["vocab.txt", "spiece.model", "generation_config.json", "engine.json", "target/tokenizer.json"]
    for name in [*stale, "notes.txt", "vocab.notes"]:
        (folder / name).write_text("{}")
    write_info(folder, task="classify", quantization=RECORD)
    network = network_of("GPT2LMHeadModel")
    save(network, folder, companions=Companions({"vocab.json": b"{}", "merges.txt": b""}, {}))
    assert names(folder) == ["config.json", "merges.txt", "model.safetensors", "notes.txt", "vocab.json", "vocab.notes"]
    assert not (folder / "target").exists()


@pytest.mark.parametrize("name", ["engine.json", "regard.json"])
def test_new_weights_alone_remove_only_the_quantization_record(folder, name):
    for other in ("vocab.txt", "generation_config.json"):
        (folder / other).write_text("{}")
    write_info(folder, task="classify", **({"quantization": RECORD} if name == "regard.json" else {}))
    if name == "engine.json":
        (folder / name).write_text(json.dumps(RECORD))
    save(network_of("BertForMaskedLM", **ONE_BLOCK), folder)
    expected = ["config.json", "generation_config.json", "model.safetensors", "regard.json", "vocab.txt"]
    assert names(folder) == expected
    assert info_of(folder) == {"format_version": 1, "task": "classify"}


def test_label_names_are_in_a_published_config_too(tmp_path):
    network = network_of("BertForSequenceClassification", **ONE_BLOCK)
    companions = Companions({}, {"labels": ["good", "bad"]})
    save(network, tmp_path / "family", companions=companions)
    save(network, tmp_path / "regard", companions=companions, regard_layout=True)
    assert ModelFolder(tmp_path / "family").config["id2label"] == {"0": "good", "1": "bad"}
    assert ModelFolder(tmp_path / "family").config["label2id"] == {"good": 0, "bad": 1}
    assert ModelFolder(tmp_path / "regard").config.keys() == {"model_type", "network", "dtype"}
    for name in ("family", "regard"):
        assert ModelFolder(tmp_path / name).labels == ("good", "bad")
        assert load(tmp_path / name)[0].config.head.labels == 2


def test_a_tokenizer_is_loaded_without_torch():
    code = "import sys, regard.tokenization.tokenizer_loader; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_what_was_written_is_read_from_the_same_object(folder):
    model = ModelFolder(folder)
    assert model.config["num_hidden_layers"] == 1
    model.write({"model_type": "other"}, {"a": torch.zeros(1)}, Companions({"generation_config.json": b'{"a": 1}'}, {}))
    assert model.config == {"model_type": "other"}
    assert model.generation_config == {"a": 1}
