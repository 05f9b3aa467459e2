"""The files of a model folder: regard.json and its versions, labels, companions, stale files."""

import json
import os
import signal
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
    copied += ["target_vocab.json", "tokenizer.json", "tokenizer_config.json", "vocab.json"]
    for name in [*copied, "vocab.of.another.name", "notes.txt", "engine.json", "pytorch_model.bin", "target/notes.txt"]:
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


def test_only_files_that_a_model_has_are_copied_also_from_links(folder, tmp_path):
    """A Hugging Face cache is a folder of links. A link of another name is not copied, wherever it points to."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (tmp_path / "blob").write_text("{}")
    for name, content in (("tokenizer.json", tmp_path / "blob"), ("tokenizer_x", secret), ("x.model", secret)):
        (folder / name).symlink_to(content)
    save(load(folder)[0], tmp_path / "copy", companions=ModelFolder(folder).companions())
    assert names(tmp_path / "copy") == ["config.json", "model.safetensors", "tokenizer.json"]
    assert not (tmp_path / "copy" / "tokenizer.json").is_symlink()


def content_of(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def old_model(folder):
    """A model with a tokenizer of its own, also for the target, and a file of the person."""
    for name in ("vocab.txt", "target/tokenizer.json", "generation_config.json", "notes.txt", "pytorch_model.bin"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")
    write_info(folder, task="classify", labels=["a", "b"])
    return content_of(folder)


NEW = Companions({"tokenizer.json": b"{1}", "merges.txt": b"", "target/tokenizer.json": b"{2}"}, {"task": "other"})


@pytest.mark.parametrize("call", ["fsync", "replace", "unlink"])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_a_model_is_replaced_as_a_whole_or_not_at_all(folder, monkeypatch, call, number):
    """A disk that fills, or any other failure, at any file."""
    before, real, calls = old_model(folder), getattr(os, call), []

    def failing(*args, **kwargs):
        calls.append(args)
        if len(calls) == number:
            raise OSError(28, os.strerror(28))
        return real(*args, **kwargs)

    network = network_of("GPT2LMHeadModel")
    monkeypatch.setattr(os, call, failing)
    failed = False
    try:
        save(network, folder, companions=NEW)
    except OSError:  # it does not come when only old files, which were replaced already, are left to be removed
        failed = True
    monkeypatch.undo()
    assert failed or (call == "unlink" and number > 3)
    if failed:
        assert content_of(folder) == before
    save(network, folder, companions=NEW)
    expected = {"config.json", "model.safetensors", "regard.json", "notes.txt", *NEW.files}
    assert set(content_of(folder)) == expected


KILLED = """
import os, signal, sys
import torch
from regard.checkpoint.model_folder import Companions, ModelFolder
real, left = os.{call}, [{number}]

def killing(*args, **kwargs):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **kwargs)

os.{call} = killing
companions = Companions({{"merges.txt": b"x"}}, {{}})
ModelFolder(sys.argv[1]).write({{"model_type": "new"}}, {{"a": torch.zeros(2)}}, companions)
"""


@pytest.mark.parametrize(("call", "number"), [("fsync", 2), ("replace", 1), ("replace", 2), ("replace", 3)])
def test_a_kill_leaves_the_old_model_or_one_that_says_what_happened(folder, call, number):
    before = old_model(folder)
    script = KILLED.format(call=call, number=number)
    done = subprocess.run([sys.executable, "-c", script, folder], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    if call == "fsync":  # nothing was renamed yet
        visible = {name: content for name, content in content_of(folder).items() if not name.startswith(".")}
        assert visible == before
        load(folder)
    else:
        with pytest.raises(
            CheckpointError, match="is half replaced: a process was killed while it wrote a model there"
        ):
            load(folder)
    save(network_of("GPT2LMHeadModel"), folder, companions=NEW)
    expected = {"config.json", "model.safetensors", "regard.json", "notes.txt", *NEW.files}
    assert set(content_of(folder)) == expected
    load(folder)


def test_links_in_the_folder_are_replaced_and_not_written_through(folder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("tokenizer.json", "model.safetensors", "config.json"):
        (outside / name).write_text("mine")
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(outside / name)
    (folder / "target").symlink_to(outside)
    save(network_of("GPT2LMHeadModel"), folder, companions=NEW)
    assert {path.read_text() for path in outside.iterdir()} == {"mine"}
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    assert (folder / "target" / "tokenizer.json").read_bytes() == b"{2}"
    (folder / "target" / "tokenizer.json").unlink()
    (folder / "target").rmdir()
    (folder / "target").symlink_to(outside)
    save(network_of("GPT2LMHeadModel"), folder, companions=Companions({}, {}))
    assert {path.read_text() for path in outside.iterdir()} == {"mine"}
