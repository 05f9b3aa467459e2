"""The library is built once, kept, and done without where it cannot be had."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from regard.native import build as building
from regard.native import library, selftest
from regard.native.build import NotBuiltError, build


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("REGARD_NATIVE", raising=False)
    return tmp_path / "regard"


@pytest.fixture
def narrow_cpu(tmp_path, monkeypatch):
    """A CPU without wide registers, whatever this one has: the library is made once, and needs no proof."""
    monkeypatch.setattr(building, "PROCESSORS", tmp_path / "none")


def counting(folder, monkeypatch, text="exit 0"):
    """A compiler that notes its calls and makes a file."""
    compiler = folder / "compiler"
    compiler.write_text(
        f'#!/bin/sh\necho called >> "{folder}/calls"\nfor last; do :; done\necho made > "$last"\n{text}\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    return lambda: len((folder / "calls").read_text().splitlines())


def test_it_is_built_once(empty_cache, narrow_cpu, tmp_path, monkeypatch):
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


EMULATED = Path(__file__).parent / "emulated.h"
WIDE_CPU = "processor : 0\nflags : fma avx2 avx512f avx512bw avx512vl avx512_vnni\n"


@pytest.fixture
def wide_cpu(tmp_path, monkeypatch):
    """A CPU that says it has wide registers; compiling is quick, for only products are compiled."""
    monkeypatch.setattr(building, "FLAGS", tuple(flag.replace("-O3", "-O0") for flag in building.FLAGS))
    (tmp_path / "c").mkdir()
    for source in building.SOURCES.iterdir():
        if source.suffix == ".h" or source.stem in ("product", "bytes", "common"):
            shutil.copy(source, tmp_path / "c")
    monkeypatch.setattr(building, "SOURCES", tmp_path / "c")
    (tmp_path / "cpuinfo").write_text(WIDE_CPU)
    monkeypatch.setattr(building, "PROCESSORS", tmp_path / "cpuinfo")


def emulate(monkeypatch, header):
    """What is compiled for wide registers is compiled for this CPU, which may have none."""
    monkeypatch.setattr(building, "WIDE_FLAGS", ("-DREGARD_WIDE", "-std=gnu11", "-include", str(header)))


def uses_wide_registers(place):
    return b"regard: 512 bits" in place.read_bytes()


@pytest.mark.parametrize(
    ("said", "wide"),
    [
        (WIDE_CPU, True),
        (WIDE_CPU.replace("avx512_vnni", ""), False),
        ("processor : 0\nnote : avx512f avx512bw avx512vl avx512_vnni\n", False),
        (None, False),
    ],
)
def test_what_the_cpu_says(tmp_path, monkeypatch, said, wide):
    if said is not None:
        (tmp_path / "cpuinfo").write_text(said)
    monkeypatch.setattr(building, "PROCESSORS", tmp_path / "cpuinfo")
    assert bool(building._wide()) == wide


@pytest.mark.skipif(not library.available(), reason="this machine has no compiled parts")
class TestWideRegisters:
    def test_they_can_be_done_without(self, empty_cache, wide_cpu, monkeypatch):
        emulate(monkeypatch, EMULATED)
        monkeypatch.setenv("REGARD_NATIVE", "avx2")
        assert not uses_wide_registers(build())

    def test_what_is_right_is_used(self, empty_cache, wide_cpu, monkeypatch):
        emulate(monkeypatch, EMULATED)
        found = build()
        assert uses_wide_registers(found)
        assert selftest.proved(str(found))

    def test_what_is_wrong_is_not(self, empty_cache, wide_cpu, tmp_path, monkeypatch):
        wrong = tmp_path / "wrong.h"
        wrong.write_text(
            EMULATED.read_text().replace(
                "emulated_four(a.whole[h], b.whole[h])", "emulated_four(a.whole[1 - h], b.whole[h])"
            )
        )
        emulate(monkeypatch, wrong)
        found = build()
        assert not uses_wide_registers(found)
        assert selftest.proved(str(found))

    def test_what_this_cpu_lacks_is_not(self, empty_cache, wide_cpu):
        """Compiled for wide registers in earnest. Where there are none the proof crashes; where there are, it holds."""
        really = set(Path("/proc/cpuinfo").read_text().split()) >= building.WIDE
        assert uses_wide_registers(build()) == really


def test_a_compiler_that_does_not_know_them(empty_cache, wide_cpu, tmp_path, monkeypatch):
    calls = counting(tmp_path, monkeypatch, text='case "$*" in *-mavx512f*) exit 1;; esac')
    assert build().read_text() == "made\n"
    assert calls() == 2


def test_several_threads_build_one_library(empty_cache, narrow_cpu, tmp_path, monkeypatch):
    calls = counting(tmp_path, monkeypatch, text="sleep 0.2")
    library._found.cache_clear()
    try:
        threads = [threading.Thread(target=library.available) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert calls() == 1
    finally:
        library._found.cache_clear()


def test_a_user_without_a_home(monkeypatch):
    def nobody(*_):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    with pytest.raises(NotBuiltError, match=r"Could not determine home directory.*set XDG_CACHE_HOME"):
        build()


def test_a_folder_in_the_working_directory_is_no_cache(tmp_path, monkeypatch):
    """A relative XDG_CACHE_HOME is to be ignored, by its specification."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    counting(tmp_path, monkeypatch)
    assert build().parent == tmp_path / "home" / ".cache" / "regard"


def test_a_folder_that_others_may_write_to(empty_cache, tmp_path, monkeypatch):
    counting(tmp_path, monkeypatch)
    assert build().is_file()
    assert empty_cache.stat().st_mode & 0o777 == 0o700
    empty_cache.chmod(0o777)
    with pytest.raises(NotBuiltError, match=r"others may write to .* make it yours alone"):
        build()
    empty_cache.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    with pytest.raises(NotBuiltError, match="others may write to"):
        build()
