"""The compiled parts: C files that the machine's own compiler turns into a library, once, in some ten seconds.

The library is kept in the user's cache folder under a name that stands for all that it depends on, so another version
of the package, of torch or of the compiler builds another one. `REGARD_NATIVE=0` in the environment does without,
`REGARD_NATIVE=avx2` makes no use of wider registers.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

PACKAGE = Path(__file__).parents[1]
SOURCES = PACKAGE / "native" / "c"
FLAGS = ("-O3", "-mavx2", "-mfma", "-fno-math-errno", "-fopenmp", "-shared", "-fPIC", "-fvisibility=hidden", "-std=c11")
WIDE_FLAGS = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512vnni", "-DREGARD_WIDE")
"""For CPUs that have all of `WIDE`: products in registers of 512 bits."""
WIDE = frozenset({"avx512f", "avx512bw", "avx512vl", "avx512_vnni"})
HALF_FLAGS = ("-mavx512bf16",)
HALF = "avx512_bf16"
"""For those that have this too: products in numbers of sixteen bits."""
PROCESSORS = Path("/proc/cpuinfo")
OFF = ("0", "off", "no", "false")


class NotBuiltError(Exception):
    """Why there is no library."""


def build() -> Path:
    """The library, built now if this machine has not built it yet. Raises `NotBuiltError` where it cannot be had."""
    said = os.environ.get("REGARD_NATIVE", "1").lower()
    if said in OFF:
        raise NotBuiltError("REGARD_NATIVE in the environment says to do without")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NotBuiltError(f"they are for Linux on x86-64, and this is {sys.platform} on {platform.machine()}")
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        raise NotBuiltError("this CPU has no AVX2")
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        raise NotBuiltError("there is no C compiler: install one (gcc), and they will be built")
    sources = sorted(SOURCES.iterdir())
    wide = () if said == "avx2" else _wide()
    library = _folder() / f"native-{_name(compiler, sources, wide)}.so"
    if not library.is_file():
        _compile(compiler, [source for source in sources if source.suffix == ".c"], library, wide)
    return library


def _wide() -> tuple[str, ...]:
    """What to compile with for wide registers, if the CPU says that it has them and what is done in them."""
    try:
        said = next((line for line in PROCESSORS.read_text().splitlines() if line.startswith("flags")), "").split()
    except OSError:
        return ()
    if not WIDE.issubset(said):
        return ()
    return (*WIDE_FLAGS, *(HALF_FLAGS if HALF in said else ()))


def _folder() -> Path:
    """The user's cache folder. What lies in it is loaded and run, so nobody else may be able to write to it."""
    said = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        folder = (said if said.is_absolute() else Path.home() / ".cache") / "regard"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    except (RuntimeError, OSError) as error:  # RuntimeError: a user without a home
        raise NotBuiltError(f"they cannot be kept in the cache folder ({error}): set XDG_CACHE_HOME") from None
    if about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise NotBuiltError(
            f"others may write to {folder}, and what lies there is run: make it yours alone (chmod 700)"
        )
    return folder


def _name(compiler: str, sources: list[Path], wide: tuple[str, ...]) -> str:
    known = [torch.__version__, compiler, str(Path(compiler).stat().st_mtime_ns), *FLAGS, *wide]
    text = "\n".join([*known, *(source.read_text(encoding="utf-8") for source in sources)])
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _compile(compiler: str, sources: list[Path], library: Path, wide: tuple[str, ...]) -> None:
    """Compile beside, and rename: nobody ever loads half a library. What is for wide registers must prove itself."""
    try:
        with tempfile.TemporaryDirectory(dir=library.parent) as beside:
            made = Path(beside) / library.name
            if not (wide and _made(compiler, (*FLAGS, *wide), sources, made) is None and _proved(made)):
                failed = _made(compiler, FLAGS, sources, made)
                if failed is not None:
                    raise NotBuiltError(f"{compiler} could not compile them: {failed}")
            made.replace(library)
    except OSError as error:
        raise NotBuiltError(f"they cannot be kept in {library.parent} ({error})") from None


def _made(compiler: str, flags: tuple[str, ...], sources: list[Path], library: Path) -> str | None:
    """Make the library; if that fails, what the compiler says."""
    command = [compiler, *flags, *map(str, sources), "-Wl,--as-needed", *_threads(), "-lm", "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip()[:500] if done.returncode else None


def _proved(library: Path) -> bool:
    """Whether the library computes what it should, in a process that may crash."""
    command = [sys.executable, "-m", "regard.native.selftest", str(library)]
    return subprocess.run(command, capture_output=True, check=False, cwd=PACKAGE.parent).returncode == 0


def _threads() -> list[str]:
    """torch's own library of threads: two of them in one process would keep each other from working."""
    return [str(path) for path in (Path(torch.__file__).parent / "lib").glob("libgomp*.so*")][:1]
