"""No pickle is executed, no remote code is run, and nothing is downloaded without `download=True`."""

import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from unit.checkpoint.folders import network_of, same, weights, write_folder, write_pickle

import regard
from regard.checkpoint.load import load
from regard.checkpoint.model_folder import CheckpointError
from regard.checkpoint.save import save

SOURCE = Path(regard.__file__).parent


class Evil:
    """Unpickling it creates a folder."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_is_refused_and_not_executed(tmp_path, zipped):
    folder, marker = write_folder(tmp_path / "model", num_hidden_layers=1), tmp_path / "marker"
    pickle.loads(pickle.dumps(Evil(marker)))
    assert marker.exists()  # plain unpickling executes it
    marker.rmdir()
    write_pickle(folder, {**weights(folder), "evil": Evil(marker)}, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin .*would run code: it is refused"):
        load(folder)
    assert not marker.exists()


@pytest.mark.parametrize(
    "name", ["training_args.bin", "optimizer.pt", "modeling_bert.py", "pytorch_model-00001-of-00002.bin"]
)
def test_other_files_of_a_folder_are_not_opened(tmp_path, name):
    folder, marker = write_folder(tmp_path / "model", num_hidden_layers=1), tmp_path / "marker"
    code = f"import os; os.mkdir({str(marker)!r})".encode()
    (folder / name).write_bytes(code if name.endswith(".py") else pickle.dumps(Evil(marker)))
    assert same(load(folder)[0], network_of("BertForMaskedLM", num_hidden_layers=1))
    assert not marker.exists()


def test_code_that_a_config_names_is_refused(tmp_path):
    """transformers would download and run it with trust_remote_code."""
    folder = write_folder(tmp_path, num_hidden_layers=1)
    with pytest.raises(CheckpointError, match="auto_map"):
        load(folder, config_overrides={"auto_map": {"AutoModel": "somebody/somewhere--modeling.Model"}})


def test_nothing_in_the_package_can_execute_a_file():
    """A new use of one of these needs an exception here, with the reason why it is safe."""
    forbidden = [
        "pickle.load",
        "pickle.Unpickler",
        "eval(",
        "exec(",
        "weights_only=False",
        "trust_remote_code",
        "torch.hub",
    ]
    allowed = {".eval("}
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        for word in allowed:
            text = text.replace(word, "")
        assert not [word for word in forbidden if word in text], path
        assert "torch.load(" not in text or "weights_only=True" in text, path


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError(f"a connection was opened: {args}")

    for name in ("socket", "create_connection", "getaddrinfo", "gethostbyname"):
        monkeypatch.setattr(socket, name, refuse)
    with pytest.raises(AssertionError):
        socket.socket()


@pytest.mark.parametrize("architecture", ["BertForMaskedLM", "GPT2LMHeadModel", "T5Model"])
def test_loading_and_saving_need_no_network(tmp_path, no_network, architecture):
    network, report = load(write_folder(tmp_path / "model", architecture))
    save(network, tmp_path / "again", origin=report.origin)
    assert same(load(tmp_path / "again")[0], network)


@pytest.mark.parametrize("name", ["bert-base-uncased", "google-bert/bert-base-uncased", "https://huggingface.co/gpt2"])
def test_a_name_is_not_looked_up(no_network, name):
    for function in (load, regard.load):
        with pytest.raises(
            CheckpointError, match=r"folder .* does not exist.*Nothing is downloaded unless requested.*download=True"
        ):
            function(name)


def test_a_folder_is_not_looked_up_even_where_a_download_is_allowed(tmp_path, no_network):
    folder = write_folder(tmp_path, num_hidden_layers=1)
    assert same(regard.load(folder, download=True).network, network_of("BertForMaskedLM", num_hidden_layers=1))


def test_neither_transformers_nor_the_hub_is_imported(tmp_path):
    folder = write_folder(tmp_path, num_hidden_layers=1)
    script = f"""
import sys
import regard.checkpoint.load, regard.checkpoint.save, regard.checkpoint.report, regard.checkpoint.tensor_files
import regard.families.registry
network, report = regard.checkpoint.load.load({str(folder)!r})
regard.checkpoint.save.save(network, {str(tmp_path / "again")!r}, origin=report.origin)
regard.load({str(folder)!r})
unwanted = {{"transformers", "huggingface_hub", "requests", "httpx", "urllib3"}} & set(sys.modules)
assert not unwanted, unwanted
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_sizes_are_checked_before_memory_is_allocated(tmp_path):
    """A file of a kilobyte that declares terabytes of weights; tests/unit/checkpoint has many more."""
    folder = write_folder(tmp_path, "BertModel", num_hidden_layers=1)
    huge = torch.zeros(1).expand(2**31 - 1, 24)
    write_pickle(folder, {**weights(folder), "embeddings.word_embeddings.weight": huge})
    with pytest.raises(CheckpointError, match=r"embeddings\.word_embeddings\.weight"):
        load(folder, config_overrides={"vocab_size": 2**31 - 1}, dtype=torch.float64)
