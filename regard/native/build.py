"""The compiled parts: C files that the machine's own compiler turns into a library, once, in a few seconds.

The library is kept in the user's cache folder under a name that stands for all that it depends on, so another version
of the package, of torch or of the compiler builds another one. `REGARD_NATIVE=0` in the environment does without.
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

SOURCES = Path(__file__).parent / "c"
FLAGS = ("-O3", "-mavx2", "-mfma", "-fno-math-errno", "-fopenmp", "-shared", "-fPIC", "-fvisibility=hidden", "-std=c11")
OFF = ("0", "off", "no", "false")


class NotBuiltError(Exception):
    """Why there is no library."""


def build() -> Path:
    """The library, built now if this machine has not built it yet. Raises `NotBuiltError` where it cannot be had."""
    if os.environ.get("REGARD_NATIVE", "1").lower() in OFF:
        raise NotBuiltError("REGARD_NATIVE in the environment says to do without")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NotBuiltError(f"they are for Linux on x86-64, and this is {sys.platform} on {platform.machine()}")
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        raise NotBuiltError("this CPU has no AVX2")
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        raise NotBuiltError("there is no C compiler: install one (gcc), and they will be built")
    sources = sorted(SOURCES.iterdir())
    library = _folder() / f"native-{_name(compiler, sources)}.so"
    if not library.is_file():
        _compile(compiler, [source for source in sources if source.suffix == ".c"], library)
    return library


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"


def _name(compiler: str, sources: list[Path]) -> str:
    known = [torch.__version__, compiler, str(Path(compiler).stat().st_mtime_ns), *FLAGS]
    text = "\n".join([*known, *(source.read_text(encoding="utf-8") for source in sources)])
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _compile(compiler: str, sources: list[Path], library: Path) -> None:
    """Compile beside, and rename: nobody ever loads half a library."""
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as beside:
            made = Path(beside) / library.name
            command = [compiler, *FLAGS, *map(str, sources), "-Wl,--as-needed", *_threads(), "-lm", "-o", str(made)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NotBuiltError(f"{compiler} could not compile them: {done.stderr.strip()[:500]}")
            made.replace(library)
    except OSError as error:
        raise NotBuiltError(f"they cannot be kept in {library.parent} ({error})") from None


def _threads() -> list[str]:
    """torch's own library of threads: two of them in one process would keep each other from working."""
    return [str(path) for path in (Path(torch.__file__).parent / "lib").glob("libgomp*.so*")][:1]
