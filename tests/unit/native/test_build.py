"""The library is built once, cached, and not used if it cannot be built."""

import hashlib
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
from regard.native.build import NotBuiltError, build, checksum_file


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("REGARD_NATIVE", raising=False)
    return tmp_path / "regard"


@pytest.fixture
def avx2_cpu(tmp_path, monkeypatch):
    """A CPU without AVX-512, whatever this one has: the library is compiled once, without a self-test."""
    monkeypatch.setattr(building, "CPUINFO", tmp_path / "none")


def counting(folder, monkeypatch, text="exit 0"):
    """Install a compiler that logs its calls and writes a file. Return a function that counts the calls."""
    compiler = folder / "compiler"
    compiler.write_text(
        f'#!/bin/sh\necho called >> "{folder}/calls"\nfor last; do :; done\necho made > "$last"\n{text}\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    return lambda: len((folder / "calls").read_text().splitlines())


def test_it_is_built_once(empty_cache, avx2_cpu, tmp_path, monkeypatch):
    calls = counting(tmp_path, monkeypatch)
    first = build()
    assert (first, calls()) == (build(), 1)
    assert first.read_text() == "made\n"
    assert sorted(empty_cache.iterdir()) == [checksum_file(first), first]  # no temporary files are left


def test_the_compilation_is_announced_and_can_be_left_out(empty_cache, avx2_cpu, tmp_path, monkeypatch, capsys):
    counting(tmp_path, monkeypatch)
    with pytest.raises(NotBuiltError, match="they are compiled at their first use"):
        build(compile_missing=False)
    first = build()
    assert capsys.readouterr().err == "compiling the native kernels for this machine, once: about ten seconds\n"
    assert build() == build(compile_missing=False) == first
    assert capsys.readouterr().err == ""


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
    with pytest.raises(NotBuiltError, match=r"could not compile the native library: no such instruction"):
        build()
    assert list(empty_cache.iterdir()) == []


def test_it_is_said_and_torch_does_the_work(empty_cache, tmp_path, monkeypatch):
    counting(tmp_path, monkeypatch, text="exit 1")
    library._load_library.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="native library is not used, torch is used instead"):
            assert not library.available()
        assert "could not compile" in library.status()
    finally:
        library._load_library.cache_clear()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda patch: patch.setenv("REGARD_NATIVE", "0"), "REGARD_NATIVE"),
        (lambda patch: patch.setattr(sys, "platform", "darwin"), "needs Linux on x86-64, this machine is darwin"),
        (lambda patch: patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT"), "no AVX2"),
        (
            lambda patch: (patch.setenv("PATH", ""), patch.delenv("CC", raising=False)),
            "no C compiler found: install gcc",
        ),
    ],
)
def test_where_it_cannot_be_had(empty_cache, monkeypatch, change, message):
    change(monkeypatch)
    with pytest.raises(NotBuiltError, match=message):
        build()


def test_a_folder_that_cannot_be_written_to(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(NotBuiltError, match="cannot write to the cache folder"):
        build()


def test_two_processes_build_one_library(empty_cache, tmp_path):
    """Both may compile, but neither loads an incomplete file of the other. Not optimized: it compiles faster."""
    code = "from regard.native.library import available, status; assert available(), status()"
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    compiler.chmod(0o755)
    environment = os.environ | {"XDG_CACHE_HOME": str(empty_cache.parent), "CC": str(compiler)}
    if not library.available():
        pytest.skip("the native library is not available")
    both = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    assert len(list(empty_cache.iterdir())) == 2  # the library and its checksum


def truncate(path):
    path.write_bytes(path.read_bytes()[:2])


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[1] ^= 1
    path.write_bytes(content)


def plant_by_another_user(path):
    """A library of another user, with a checksum that fits."""
    for file, content in ((path, b"evil\n"), (checksum_file(path), hashlib.sha256(b"evil\n").hexdigest().encode())):
        file.write_bytes(content)
        os.chown(file, 4242, 4242)


def plant_a_link(path):
    evil = path.parent.parent / "evil.so"
    evil.write_bytes(b"evil\n")
    path.unlink()
    path.symlink_to(evil)
    checksum_file(path).write_bytes(hashlib.sha256(b"evil\n").hexdigest().encode())


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        flip_a_bit,
        lambda path: path.write_bytes(b""),
        lambda path: checksum_file(path).unlink(),
        lambda path: checksum_file(path).write_bytes(b"\xff"),
        lambda path: path.chmod(0o722),
        plant_a_link,
        pytest.param(plant_by_another_user, marks=pytest.mark.skipif(os.getuid() != 0, reason="only root can chown")),
    ],
    ids=["truncated", "flipped", "empty", "no checksum", "wrong checksum", "writable", "link", "another user"],
)
def test_a_library_that_was_changed_is_built_again(empty_cache, avx2_cpu, tmp_path, monkeypatch, damage):
    calls = counting(tmp_path, monkeypatch)
    first = build()
    damage(first)
    assert (build(), calls()) == (first, 2)
    assert first.read_bytes() == b"made\n"
    assert not first.is_symlink()
    assert (build(), calls()) == (first, 2)


def test_a_library_of_another_program_is_not_used(empty_cache, avx2_cpu, tmp_path, monkeypatch):
    """It has the right checksum, but not the functions."""
    counting(tmp_path, monkeypatch)
    path = build()
    shutil.copy(next(Path(torch.__file__).parent.glob("lib/libgomp*")), path)
    path.chmod(0o700)
    checksum_file(path).write_bytes(hashlib.sha256(path.read_bytes()).hexdigest().encode())
    library._load_library.cache_clear()
    try:
        assert not library.available()
        assert "undefined symbol" in library.status()
    finally:
        library._load_library.cache_clear()


def test_a_compiler_that_hangs_is_stopped_with_its_children(empty_cache, avx2_cpu, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "TIME_LIMIT", 0.5)
    counting(tmp_path, monkeypatch, text=f"sleep 60 & echo $! > '{tmp_path}/child'; wait")
    with pytest.raises(NotBuiltError, match=r"could not compile the native library: no result after 0\.5 seconds"):
        build()
    child = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")
    assert not child.exists() or child.read_text().split()[2] == "Z"


def test_output_that_is_no_text(empty_cache, tmp_path, monkeypatch):
    counting(tmp_path, monkeypatch, text=r"printf '\377 wrong' >&2; exit 1")
    with pytest.raises(NotBuiltError, match="could not compile the native library: \N{REPLACEMENT CHARACTER} wrong"):
        build()


def test_what_killed_builds_left_is_removed(empty_cache, avx2_cpu, tmp_path, monkeypatch):
    counting(tmp_path, monkeypatch)
    (empty_cache / "build-x1").mkdir(parents=True, mode=0o700)
    (empty_cache / "build-x1" / "native.so").write_text("half")
    (empty_cache / "mine").mkdir()
    empty_cache.chmod(0o700)
    path = build()
    assert sorted(empty_cache.iterdir()) == sorted([path, checksum_file(path), empty_cache / "mine"])


EMULATED = Path(__file__).parent / "avx512_emulation.h"
AVX512_CPU = "processor : 0\nflags : fma avx2 avx512f avx512bw avx512vl avx512_vnni\n"


@pytest.fixture
def avx512_cpu(tmp_path, monkeypatch):
    """A CPU that reports AVX-512. Only the GEMM sources are compiled, which is fast."""
    monkeypatch.setattr(building, "FLAGS", tuple(flag.replace("-O3", "-O0") for flag in building.FLAGS))
    (tmp_path / "c").mkdir()
    for source in building.SOURCES.iterdir():
        if source.suffix == ".h" or source.stem in ("gemm_f32", "gemm_int8", "scratch"):
            shutil.copy(source, tmp_path / "c")
    monkeypatch.setattr(building, "SOURCES", tmp_path / "c")
    (tmp_path / "cpuinfo").write_text(AVX512_CPU)
    monkeypatch.setattr(building, "CPUINFO", tmp_path / "cpuinfo")


def emulate(monkeypatch, header):
    """Compile the AVX-512 code for this CPU, which may have none, with emulated instructions."""
    monkeypatch.setattr(building, "AVX512_FLAGS", ("-DREGARD_AVX512", "-std=gnu11", "-include", str(header)))


def uses_avx512(path):
    return b"regard: 512 bits" in path.read_bytes()


@pytest.mark.parametrize(
    ("cpuinfo", "has_avx512"),
    [
        (AVX512_CPU, True),
        (AVX512_CPU.replace("avx512_vnni", ""), False),
        ("processor : 0\nnote : avx512f avx512bw avx512vl avx512_vnni\n", False),
        (None, False),
    ],
)
def test_what_the_cpu_says(tmp_path, monkeypatch, cpuinfo, has_avx512):
    if cpuinfo is not None:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
    monkeypatch.setattr(building, "CPUINFO", tmp_path / "cpuinfo")
    assert bool(building._avx512_flags()) == has_avx512


@pytest.mark.skipif(not library.available(), reason="the native library is not available")
class TestAvx512:
    def test_they_can_be_done_without(self, empty_cache, avx512_cpu, monkeypatch):
        emulate(monkeypatch, EMULATED)
        monkeypatch.setenv("REGARD_NATIVE", "avx2")
        assert not uses_avx512(build())

    def test_what_is_right_is_used(self, empty_cache, avx512_cpu, monkeypatch):
        emulate(monkeypatch, EMULATED)
        found = build()
        assert uses_avx512(found)
        assert selftest.passes(str(found))

    def test_what_is_wrong_is_not(self, empty_cache, avx512_cpu, tmp_path, monkeypatch):
        wrong = tmp_path / "wrong.h"
        wrong.write_text(
            EMULATED.read_text().replace(
                "emulated_dot4(a.ints[h], b.ints[h])", "emulated_dot4(a.ints[1 - h], b.ints[h])"
            )
        )
        emulate(monkeypatch, wrong)
        found = build()
        assert not uses_avx512(found)
        assert selftest.passes(str(found))

    def test_what_this_cpu_lacks_is_not(self, empty_cache, avx512_cpu):
        """Compiled for AVX-512 without emulation: the self-test crashes if the CPU has none, otherwise it passes."""
        has_avx512 = set(Path("/proc/cpuinfo").read_text().split()) >= building.AVX512_FEATURES
        assert uses_avx512(build()) == has_avx512


def test_a_compiler_that_does_not_know_them(empty_cache, avx512_cpu, tmp_path, monkeypatch):
    calls = counting(tmp_path, monkeypatch, text='case "$*" in *-mavx512f*) exit 1;; esac')
    assert build().read_text() == "made\n"
    assert calls() == 2


def test_several_threads_build_one_library(empty_cache, avx2_cpu, tmp_path, monkeypatch):
    calls = counting(tmp_path, monkeypatch, text="sleep 0.2")
    library._load_library.cache_clear()
    try:
        threads = [threading.Thread(target=library.available) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert calls() == 1
    finally:
        library._load_library.cache_clear()


def test_a_user_without_a_home(monkeypatch):
    def nobody(*_):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    with pytest.raises(NotBuiltError, match=r"Could not determine home directory.*set XDG_CACHE_HOME"):
        build()


def test_a_folder_in_the_working_directory_is_no_cache(tmp_path, monkeypatch):
    """The specification says to ignore a relative XDG_CACHE_HOME."""
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
    with pytest.raises(
        NotBuiltError, match=r"owned by another user or writable by others, .* delete it, and it is made anew"
    ):
        build()
    empty_cache.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    with pytest.raises(NotBuiltError, match="owned by another user or writable by others"):
        build()
