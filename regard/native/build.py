"""Builds the native library from C, once, with the machine's own compiler. It takes about ten seconds.

The library is stored in the user's cache folder. Its file name is a hash of everything that it depends on, so another
version of the package, of torch or of the compiler builds another library. A file beside it has its checksum: before
the library is loaded, both files must belong to the user, not be writable by other users, and fit together; otherwise
the library is built again. The environment variable `REGARD_NATIVE=0` disables the library, `REGARD_NATIVE=avx2`
disables AVX-512.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from regard.files import sync
from regard.progress import write_note

PACKAGE = Path(__file__).parents[1]
SOURCES = PACKAGE / "native" / "c"
FLAGS = ("-O3", "-mavx2", "-mfma", "-fno-math-errno", "-fopenmp", "-shared", "-fPIC", "-fvisibility=hidden", "-std=c11")
AVX512_FLAGS = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512vnni", "-DREGARD_AVX512")
"""For CPUs that have all of `AVX512_FEATURES`: matrix multiplication with AVX-512."""
AVX512_FEATURES = frozenset({"avx512f", "avx512bw", "avx512vl", "avx512_vnni"})
AVX512_BF16_FLAGS = ("-mavx512bf16",)
AVX512_BF16_FEATURE = "avx512_bf16"
"""For CPUs that have this feature too: bf16 matrix multiplication."""
CPUINFO = Path("/proc/cpuinfo")
DISABLED_VALUES = ("0", "off", "no", "false")
TIME_LIMIT = 300
"""Seconds that the compiler, or a self-test, may take. Usual are ten."""
MAX_LIBRARY_BYTES = 64 * 2**20
"""Size limit of a library. It has less than one megabyte."""
BUILD_FOLDER = re.compile(r"build-.*|tmp[a-z0-9_]{8}")
"""The temporary folders of builds; a killed build leaves one. (The second form is that of version 0.1.)"""


class NotBuiltError(Exception):
    """There is no native library; the message gives the reason."""


def build(*, compile_missing: bool = True) -> Path:
    """Return the path of the library, and build it if it is not in the cache. Raises `NotBuiltError` on failure."""
    setting = os.environ.get("REGARD_NATIVE", "1").lower()
    if setting in DISABLED_VALUES:
        raise NotBuiltError("disabled by the environment variable REGARD_NATIVE")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NotBuiltError(
            f"the native library needs Linux on x86-64, this machine is {sys.platform} on {platform.machine()}"
        )
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        raise NotBuiltError("this CPU has no AVX2")
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        raise NotBuiltError("no C compiler found: install gcc, and the native library is built at the next start")
    sources = sorted(SOURCES.iterdir())
    extra_flags = () if setting == "avx2" else _avx512_flags()
    library = _cache_folder() / f"native-{_cache_key(compiler, sources, extra_flags)}.so"
    if not is_intact(library):
        if not compile_missing:
            raise NotBuiltError("they are compiled at their first use, which takes about ten seconds")
        with _build_lock(library.parent):  # another process may be building it
            if not is_intact(library):
                write_note("compiling the native kernels for this machine, once: about ten seconds")
                _compile(compiler, [source for source in sources if source.suffix == ".c"], library, extra_flags)
    return library


def is_intact(library: Path) -> bool:
    """Return whether a library may be loaded: the user's own, unchanged file, with the checksum beside it."""
    content, checksum = _read_own_file(library), _read_own_file(checksum_file(library))
    return content is not None and checksum == _checksum(content)


def checksum_file(library: Path) -> Path:
    """Return the path of the checksum of a library."""
    return library.with_suffix(".sha256")


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _read_own_file(path: Path) -> bytes | None:
    """Read a regular file that belongs to the user and that no other user can change; None if it is not such a file."""
    try:
        status = path.lstat()
        own = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
        return path.read_bytes() if own and status.st_size <= MAX_LIBRARY_BYTES else None
    except OSError:
        return None


@contextmanager
def _build_lock(folder: Path) -> Iterator[None]:
    """Lock the cache folder, and remove what killed builds left in it."""
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(PermissionError):  # some network file systems do not support locks
            fcntl.flock(handle, fcntl.LOCK_EX)
            for path in folder.iterdir():
                if path.is_dir() and not path.is_symlink() and BUILD_FOLDER.fullmatch(path.name):
                    shutil.rmtree(path, ignore_errors=True)
        yield
    finally:
        os.close(handle)


def _avx512_flags() -> tuple[str, ...]:
    """Return the compiler flags for AVX-512 if the CPU has all features that the kernels use, otherwise none."""
    try:
        features = next((line for line in CPUINFO.read_text().splitlines() if line.startswith("flags")), "").split()
    except OSError:
        return ()
    if not AVX512_FEATURES.issubset(features):
        return ()
    return (*AVX512_FLAGS, *(AVX512_BF16_FLAGS if AVX512_BF16_FEATURE in features else ()))


def cache_folder() -> Path:
    """Return the user's cache folder."""
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache_home if cache_home.is_absolute() else Path.home() / ".cache") / "regard"


def _cache_folder() -> Path:
    """Create the user's cache folder. Code is loaded from it, so no other user may be able to write to it."""
    try:
        folder = cache_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (RuntimeError, OSError) as error:  # RuntimeError: a user without a home
        raise NotBuiltError(f"cannot write to the cache folder ({error}): set XDG_CACHE_HOME") from None
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise NotBuiltError(
            f"{folder} is owned by another user or writable by others, and code is loaded from it: "
            "delete it, and it is made anew; after a chmod 700, files that others placed there are not used"
        )
    return folder


def _cache_key(compiler: str, sources: list[Path], extra_flags: tuple[str, ...]) -> str:
    versions = [torch.__version__, compiler, str(Path(compiler).stat().st_mtime_ns), *FLAGS, *extra_flags]
    text = "\n".join([*versions, *(source.read_text(encoding="utf-8") for source in sources)])
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _compile(compiler: str, sources: list[Path], library: Path, extra_flags: tuple[str, ...]) -> None:
    """Compile to a temporary folder, flush and rename, so that no process loads an incomplete library.

    A library with extra flags has to pass the self-test; otherwise it is compiled again without them.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="build-", dir=library.parent) as temporary_folder:
            temporary = Path(temporary_folder) / library.name
            if not (
                extra_flags
                and _run_compiler(compiler, (*FLAGS, *extra_flags), sources, temporary) is None
                and _passes_selftest(temporary)
            ):
                error_output = _run_compiler(compiler, FLAGS, sources, temporary)
                if error_output is not None:
                    # library.py looks for "could not compile"
                    raise NotBuiltError(f"{compiler} could not compile the native library: {error_output}")
            temporary.chmod(0o700)
            checksum = checksum_file(temporary)
            checksum.write_bytes(_checksum(temporary.read_bytes()))
            checksum.chmod(0o600)
            for file, target in ((checksum, checksum_file(library)), (temporary, library)):
                sync(file)
                if target.is_dir():
                    shutil.rmtree(target)
                file.replace(target)
            sync(library.parent)
    except OSError as error:
        raise NotBuiltError(f"cannot write the native library to {library.parent} ({error})") from None


def _run_compiler(compiler: str, flags: tuple[str, ...], sources: list[Path], library: Path) -> str | None:
    """Compile the library. Return None on success, otherwise the compiler's error output."""
    command = [compiler, *flags, *map(str, sources), "-Wl,--as-needed", *_openmp_library(), "-lm", "-o", str(library)]
    code, output = _run(command)
    return output.decode(errors="replace").strip()[:500] if code else None


def _passes_selftest(library: Path) -> bool:
    """Run the self-test in a subprocess, which may crash."""
    command = [sys.executable, "-m", "regard.native.selftest", str(library)]
    return _run(command, PACKAGE.parent)[0] == 0


def _run(command: Sequence[str], folder: Path | None = None) -> tuple[int, bytes]:
    """Run a command; return its exit code and error output. It is killed with its children after `TIME_LIMIT`."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=folder, start_new_session=True
    )
    try:
        _, output = process.communicate(timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        return 1, f"no result after {TIME_LIMIT} seconds".encode()
    finally:
        if process.poll() is None:  # also after Ctrl-C
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stderr is not None:
            process.stderr.close()
    return process.returncode, output


def _openmp_library() -> list[str]:
    """Return torch's own OpenMP library. Two of them in one process would compete for the cores."""
    return [str(path) for path in (Path(torch.__file__).parent / "lib").glob("libgomp*.so*")][:1]
