"""The library is built once, kept, and done without where it cannot be had."""

import os
import subprocess
import sys

import pytest
import torch

from regard.native import build as building
from regard.native import library
from regard.native.build import NotBuiltError, build


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("REGARD_NATIVE", raising=False)
    return tmp_path / "regard"


def counting(folder, monkeypatch, text="exit 0"):
    """A compiler that notes its calls and makes a file."""
    compiler = folder / "compiler"
    compiler.write_text(
        f'#!/bin/sh\necho called >> "{folder}/calls"\nfor last; do :; done\necho made > "$last"\n{text}\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    return lambda: len((folder / "calls").read_text().splitlines())


def test_it_is_built_once(empty_cache, tmp_path, monkeypatch):
    calls = counting(tmp_path, monkeypatch)
    first = build()
    assert (first, calls()) == (build(), 1)
    assert first.read_text() == "made\n"
    assert list(empty_cache.iterdir()) == [first]  # nothing half-made is left


def test_another_source_is_another_library(empty_cache, tmp_path, monkeypatch):
    counting(tmp_path, monkeypatch)
    sources = tmp_path / "c"
    sources.mkdir()
    monkeypatch.setattr(building, "SOURCES", sources)
    (sources / "one.c").write_text("int one;")
    first = build()
    (sources / "one.c").write_text("int other;")
    assert build() != first


def test_a_compiler_that_fails(empty_cache, tmp_path, monkeypatch):
    counting(tmp_path, monkeypatch, text="echo 'no such instruction' >&2; exit 1")
    with pytest.raises(NotBuiltError, match=r"could not compile them: no such instruction"):
        build()
    assert list(empty_cache.iterdir()) == []


def test_it_is_said_and_torch_does_the_work(empty_cache, tmp_path, monkeypatch):
    counting(tmp_path, monkeypatch, text="exit 1")
    library._found.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="compiled parts are not used"):
            assert not library.available()
        assert "could not compile" in library.status()
    finally:
        library._found.cache_clear()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda patch: patch.setenv("REGARD_NATIVE", "0"), "REGARD_NATIVE"),
        (lambda patch: patch.setattr(sys, "platform", "darwin"), "for Linux on x86-64, and this is darwin"),
        (lambda patch: patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT"), "no AVX2"),
        (lambda patch: (patch.setenv("PATH", ""), patch.delenv("CC", raising=False)), "no C compiler: install one"),
    ],
)
def test_where_it_cannot_be_had(empty_cache, monkeypatch, change, said):
    change(monkeypatch)
    with pytest.raises(NotBuiltError, match=said):
        build()


def test_a_folder_that_cannot_be_written_to(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(NotBuiltError, match="cannot be kept in"):
        build()


def test_two_processes_build_one_library(empty_cache):
    """Both may compile, but neither ever loads half of what the other wrote."""
    code = "from regard.native.library import available, status; assert available(), status()"
    environment = os.environ | {"XDG_CACHE_HOME": str(empty_cache.parent)}
    if not library.available():
        pytest.skip("this machine has no compiled parts")
    both = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    assert len(list(empty_cache.iterdir())) == 1
