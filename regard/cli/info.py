"""`regard info`: versions, processor, native kernels, threads and caches of this machine."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

PACKAGES = ("torch", "numpy", "tokenizers", "safetensors", "pydantic", "matplotlib")
CPUINFO = Path("/proc/cpuinfo")
INSTRUCTIONS = {
    "avx2": "AVX2",
    "fma": "FMA",
    "avx512f": "AVX-512",
    "avx512_vnni": "AVX-512 VNNI",
    "avx512_bf16": "AVX-512 BF16",
    "amx_tile": "AMX",
}
"""The instructions that the kernels or torch use, as the processor calls them and as people do."""


def info(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show versions, processor, native kernels (in use, or why not), threads and caches.

    Nothing is compiled or downloaded. Add this to a bug report.
    """
    facts = collect()
    if as_json:
        sys.stdout.write(json.dumps(facts, ensure_ascii=False) + "\n")
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        sys.stdout.write(f"{name:{width}}  {value}\n")


def collect() -> dict[str, str]:
    """Return the facts by name."""
    import torch

    from regard.native.build import cache_folder
    from regard.threads import describe_threads
    from regard.version import __version__

    cores = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    return {
        "regard": f"{__version__} in {Path(__file__).parents[1]}",
        "Python": f"{platform.python_version()} in {sys.prefix}",
        **{name: _version(name) for name in PACKAGES},
        "system": platform.platform(),
        "processor": _processor(),
        "instructions": ", ".join(_instructions()) or "none that are used",
        "native kernels": _kernels(),
        "GPU": torch.cuda.get_device_name() if torch.cuda.is_available() else "none that torch can use",
        "cores": f"{cores}, of which this process may use {allowed}",
        "threads": describe_threads(),
        "cache": _describe_cache(cache_folder()),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _cpuinfo() -> Mapping[str, str]:
    """Return what the system says about its first processor; empty on other systems than Linux."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _processor() -> str:
    return _cpuinfo().get("model name") or platform.processor() or platform.machine()


def _instructions() -> list[str]:
    flags = set(_cpuinfo().get("flags", "").split())
    return [name for flag, name in INSTRUCTIONS.items() if flag in flags]


def _kernels() -> str:
    """Return whether the kernels are used, or why not. They are not compiled for that."""
    from regard.native import library
    from regard.native.build import NotBuiltError, build

    try:
        path = build(compile_missing=False)
    except NotBuiltError as error:
        return f"not in use: {error}"
    status = library.status()
    return f"in use: {path}" if status == "in use" else f"not in use: {status}"


def _describe_cache(folder: Path) -> str:
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    size = sum(path.stat().st_size for path in files) / 1e6
    return f"{folder}: {len(files)} files, {size:.1f} MB" if files else f"{folder}: empty"
