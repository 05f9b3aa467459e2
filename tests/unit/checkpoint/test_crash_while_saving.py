"""A failure while saving leaves the previous files complete and no partial files behind."""

import os
from pathlib import Path

import pytest
from unit.checkpoint.folders import network_of, same, weights, write_folder

from regard.checkpoint import tensor_files
from regard.checkpoint.load import load
from regard.checkpoint.save import save
from regard.checkpoint.tensor_files import write_tensors
from regard.files import atomic_write, write_json

ONE_BLOCK = dict(num_hidden_layers=1)
OLD = network_of("BertForMaskedLM", seed=0, **ONE_BLOCK)
NEW = network_of("BertForMaskedLM", seed=1, **ONE_BLOCK)


class Failure(Exception):
    """An unexpected failure."""


def half_written(tensors, path, metadata=None):
    Path(path).write_bytes(b"half a file")
    raise Failure


def fail(*_, **__):
    raise Failure


def fail_at(call, real):
    """Return a function that works like `real` until this call."""
    calls = []

    def failing(*args, **kwargs):
        calls.append(args)
        if len(calls) == call:
            raise Failure
        return real(*args, **kwargs)

    return failing


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path, seed=0, **ONE_BLOCK)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_untouched(folder, before):
    assert content(folder) == before
    assert same(load(folder)[0], OLD)


def test_a_writer_that_stops_halfway(folder, monkeypatch):
    before = content(folder)
    monkeypatch.setattr(tensor_files, "save_file", half_written)
    with pytest.raises(Failure):
        save(NEW, folder)
    assert_untouched(folder, before)


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_failing_system_call(folder, monkeypatch, function):
    before = content(folder)
    monkeypatch.setattr(os, function, fail)
    with pytest.raises(Failure):
        save(NEW, folder)
    monkeypatch.undo()
    assert_untouched(folder, before)


def test_an_interrupt(folder, monkeypatch):
    before = content(folder)

    def interrupted(tensors, path, metadata=None):
        Path(path).write_bytes(b"half a file")
        raise KeyboardInterrupt

    monkeypatch.setattr(tensor_files, "save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(NEW, folder)
    assert_untouched(folder, before)


def test_a_config_that_cannot_be_written_leaves_the_old_one(folder, monkeypatch):
    """Weights and config are two files: the weights may already be new, the config is the old one."""
    before = content(folder)
    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(Failure):
        save(NEW, folder)
    monkeypatch.undo()
    assert content(folder).keys() == before.keys()
    assert content(folder)["config.json"] == before["config.json"]
    assert same(load(folder)[0], NEW)


def test_shards_over_one_file_that_fail_in_between(folder, monkeypatch):
    new = dict(weights(write_folder(folder / "other", seed=1, **ONE_BLOCK)))
    monkeypatch.setattr(tensor_files, "save_file", fail_at(3, tensor_files.save_file))
    with pytest.raises(Failure):
        write_tensors(folder, new, max_shard_bytes=4000)
    assert not list(folder.glob(".*"))
    assert same(load(folder)[0], OLD)


def test_shards_over_shards_that_fail_in_between(folder, monkeypatch):
    new = dict(weights(write_folder(folder / "other", seed=1, **ONE_BLOCK)))
    write_tensors(folder, weights(folder), max_shard_bytes=4000)
    monkeypatch.setattr(tensor_files, "save_file", fail_at(3, tensor_files.save_file))
    with pytest.raises(Failure):
        write_tensors(folder, new, max_shard_bytes=4000)
    monkeypatch.undo()
    assert not list(folder.glob(".*"))
    assert same(load(folder)[0], OLD)


def test_a_file_takes_its_name_only_when_it_is_complete(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_write(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.parent == path.parent  # a rename is atomic only within one file system
    assert path.read_text() == "new"
    assert [other.name for other in tmp_path.iterdir()] == ["file"]


def test_a_failure_before_writing_leaves_nothing(tmp_path):
    with pytest.raises(Failure), atomic_write(tmp_path / "file"):
        raise Failure
    assert not list(tmp_path.iterdir())


def test_a_value_that_json_cannot_encode_leaves_the_old_file(tmp_path):
    write_json(tmp_path / "a.json", {"a": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"a": object()})
    assert (tmp_path / "a.json").read_text() == '{\n  "a": 1\n}\n'
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
