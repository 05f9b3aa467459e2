"""Atomic writes of files and folders, flushing, and the errors of JSON files."""

import errno
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from unit.training.recipes import train
from unit.training.tiny_data import files_of, write_recipe

from regard import files
from regard.training.run.run_dir import RunDir


class Failure(Exception):
    """An unexpected failure."""


def content(folder):
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_several_files_are_written_or_none(tmp_path, monkeypatch):
    files.write_files(tmp_path, {"a": b"1", "sub/b": b"2"})
    assert content(tmp_path) == {"a": "1", "sub/b": "2"}
    real, synced = os.fsync, []

    def fail_at_the_second(handle):
        synced.append(handle)
        if len(synced) == 2:
            raise Failure
        real(handle)

    monkeypatch.setattr(os, "fsync", fail_at_the_second)
    with pytest.raises(Failure):
        files.write_files(tmp_path, {"a": b"3", "sub/b": b"4"})
    assert content(tmp_path) == {"a": "1", "sub/b": "2"}


def test_a_folder_takes_its_name_when_it_is_complete(tmp_path):
    path = tmp_path / "folder"
    for number in (1, 2):
        with files.atomic_folder(path) as temporary:
            assert not [*temporary.iterdir()]
            (temporary / "sub").mkdir()
            (temporary / "sub" / str(number)).write_text("x")
            assert content(path) == ({} if number == 1 else {"sub/1": "x"})
        assert [other.name for other in tmp_path.iterdir()] == ["folder"]
        assert content(path) == {f"sub/{number}": "x"}


def test_every_file_of_a_folder_is_flushed_before_it_is_renamed(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(files, "sync", lambda path: calls.append(path.name))
    with files.atomic_folder(tmp_path / "folder") as temporary:
        (temporary / "sub").mkdir()
        (temporary / "sub" / "a").write_text("x")
    assert sorted(calls[:2]) == ["a", "sub"]
    assert re.fullmatch(r"\.folder\.[0-9a-f]{16}\.part", calls[2])
    assert calls[3:] == [tmp_path.name]


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_folder_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch, call):
    path = tmp_path / "folder"
    with files.atomic_folder(path) as temporary:
        (temporary / "a").write_text("old")
    real, calls = getattr(os, call), []

    def fail_at_the_second(*args, **kwargs):
        calls.append(args)
        if len(calls) == 2:
            raise Failure
        return real(*args, **kwargs)

    monkeypatch.setattr(os, call, fail_at_the_second)
    with pytest.raises(Failure), files.atomic_folder(path) as temporary:
        (temporary / "a").write_text("new")
    assert content(tmp_path) == {"folder/a": "old"}
    assert [other.name for other in tmp_path.iterdir()] == ["folder"]


def test_a_folder_is_repaired_after_a_kill_between_two_renames(tmp_path):
    path = tmp_path / "folder"
    for name in (".folder.old", ".folder.part"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text(name)
    files.repair_folder(path)
    assert content(tmp_path) == {"folder/a": ".folder.old"}
    assert [other.name for other in tmp_path.iterdir()] == ["folder"]


def test_only_temporary_names_of_this_library_are_removed(tmp_path):
    # The last one is of version 0.1.
    own = [".folder.0123456789abcdef.part", ".folder.0123456789abcdef.gone", ".folder.4711.part"]
    foreign = [
        ".folder.backup.part",
        ".other.part",
        "folder.part",
        ".folder.0123456789abcdef.part.txt",
        ".folder.12.zip",
    ]
    for name in [*own, *foreign]:
        (tmp_path / name).mkdir()
    files.repair_folder(tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(foreign)


def test_a_temporary_name_is_random_and_no_link_is_followed(tmp_path, monkeypatch):
    outside = tmp_path / "outside"
    outside.write_text("mine")
    names = set()
    for _ in range(2):
        with files.atomic_write(tmp_path / "a") as temporary:
            names.add(temporary.name)
            temporary.write_text("x")
    assert len(names) == 2
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: "0" * 16)  # somebody who guesses the name
    (tmp_path / f".a.{'0' * 16}.part").symlink_to(outside)
    with pytest.raises(FileExistsError), files.atomic_write(tmp_path / "a"):
        pass
    assert outside.read_text() == "mine"


@pytest.mark.parametrize("kind", ["fifo", "device", "directory", "large"])
def test_only_regular_files_of_a_plausible_size_are_read(tmp_path, monkeypatch, kind):
    path = tmp_path / "a.json"
    monkeypatch.setattr(files, "MAX_TEXT_BYTES", 100)
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "directory":
            path.mkdir()
        case "large":
            path.write_bytes(b" " * 101)
    with pytest.raises(ValueError, match=r"a\.json cannot be read: (is a|has 101 bytes; expected at most 100)"):
        files.read_json(path)


@pytest.fixture
def windows(monkeypatch):
    """As on Windows: folders cannot be opened, and there is no fcntl."""
    real = os.open

    def refuse_folders(path, *args, **kwargs):
        if Path(path).is_dir():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse_folders)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setattr(shutil, "_use_fd_functions", False)  # elsewhere rmtree opens folders


def test_a_run_where_folders_cannot_be_opened(tmp_path, request):
    recipe = write_recipe(tmp_path)
    change = {"training.save_every": 2, "training.evaluate_every": 2}
    for system in ("linux", "windows"):
        if system == "windows":
            request.getfixturevalue("windows")
        train(recipe, {**change, "training.steps": 2}, output=tmp_path / system)
        train(recipe, {**change, "training.steps": 4}, output=tmp_path / system, resume=True)
    assert files_of(tmp_path / "windows") == files_of(tmp_path / "linux")


def test_a_run_directory_without_fcntl_is_not_locked(tmp_path, windows):
    with RunDir(tmp_path / "run").lock(), RunDir(tmp_path / "run").lock():
        assert (tmp_path / "run").is_dir()


def test_only_folders_may_refuse_to_be_opened(tmp_path, windows, monkeypatch):
    files.sync(tmp_path)
    (tmp_path / "a").write_text("x")

    def refuse(path, *args, **kwargs):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError):
        files.sync(tmp_path / "a")


class OwnError(ValueError):
    """The error class of a caller."""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{\n "a": 1,\n "b" 2\n}', r"a\.json, line 3: invalid JSON \(Expecting ':' delimiter\)"),
        (b"", r"a\.json, line 1: invalid JSON"),
        (b"[1]", r"a\.json: expected a JSON object, found list"),
        (b'{"a": "\xff"}', r"a\.json: byte 8 is not valid UTF-8"),
        (b'{"a":' * 100_000, r"a\.json: JSON nested too deeply"),
        (b'{"a": 1' + 5000 * b"0" + b"}", r"a\.json: invalid JSON .*5001 digits"),
        (None, r"a\.json does not exist"),
    ],
    ids=["line", "empty", "list", "bytes", "deep", "digits", "missing"],
)
def test_errors_of_json_files_name_file_and_line(tmp_path, text, message):
    if text is not None:
        (tmp_path / "a.json").write_bytes(text)
    for error in (ValueError, OwnError):
        with pytest.raises(error, match=message) as caught:
            files.read_json(tmp_path / "a.json", error)
        assert type(caught.value) is error


def test_json_is_read_as_it_was_written(tmp_path):
    value = {"a": [1, 0.1, None, True], "Straße": {"b": "東京"}}
    files.write_json(tmp_path / "a.json", value)
    assert files.read_json(tmp_path / "a.json") == value
    assert "Straße" in (tmp_path / "a.json").read_text(encoding="utf-8")
