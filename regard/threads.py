"""CPU threads: how many there are to use, and what they do while they wait for each other.

torch and the native kernels share one OpenMP library (libgomp). It reads its settings from the environment when torch
is loaded, so `configure_openmp` runs when `regard` is imported. This module imports the standard library only.

By default a thread of libgomp spins for milliseconds before it sleeps. That costs nothing while every thread has a core
of its own. Beside another program, the waiting thread takes the core that the working thread needs, and the two are
several times slower than one (benchmarks/busy.py).
"""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SPIN_COUNT = 1000
"""How often a waiting thread looks again before it sleeps: some ten microseconds."""
WAIT_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
"""The environment variables that decide what a waiting thread does. What the user set is left as it is."""
COUNT_SETTINGS = ("OMP_NUM_THREADS", "RAYON_NUM_THREADS")
"""The environment variables with the number of threads: torch with MKL and the native kernels, tokenizers."""


class ThreadSettings:
    """What was decided for this process."""

    requested: int | None = None
    """Number of threads that `--threads` requests."""
    torch_was_first: bool = False
    """torch was imported before regard: it did not read the settings."""


def configure_openmp() -> None:
    """Choose the waiting policy and the number of threads for torch, in the environment. What the user set is kept."""
    settings: dict[str, str] = {}
    if not any(name in os.environ for name in WAIT_SETTINGS):
        settings["GOMP_SPINCOUNT"] = str(SPIN_COUNT)
    quota = cgroup_quota()
    if quota is not None and math.ceil(quota) < available_cpus():
        settings |= {name: str(default_threads()) for name in COUNT_SETTINGS if name not in os.environ}
    ThreadSettings.torch_was_first = bool(settings) and "torch" in sys.modules
    if not ThreadSettings.torch_was_first:
        os.environ.update(settings)


def request_threads(number: int) -> None:
    """Use this many CPU threads in this process, whatever the environment has."""
    ThreadSettings.requested = number
    os.environ.update(dict.fromkeys((*COUNT_SETTINGS, "MKL_NUM_THREADS"), str(number)))
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(number)


def default_threads() -> int:
    """Return the number of CPUs that this process may use: the smaller of its CPU affinity and its cgroup quota.

    torch uses fewer if two CPUs share a core (hyper-threading): one thread per core is faster for matrix products.
    """
    quota = cgroup_quota()
    return available_cpus() if quota is None else max(1, min(available_cpus(), math.ceil(quota)))


def available_cpus() -> int:
    """Return the number of CPUs in the affinity mask of this process (`taskset`, cpusets of containers)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def cgroup_quota(root: Path = Path("/")) -> float | None:
    """Return how many CPUs' time the cgroup of this process may use, None if there is no limit.

    It is the lowest limit of the cgroup and all that contain it. Docker's `--cpus` and the CPU limits of Kubernetes and
    systemd are such quotas. `root` is the folder that holds `proc` and `sys`.
    """
    try:
        mounts = [line.split() for line in (root / "proc/self/mountinfo").read_text().splitlines()]
        groups = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text().splitlines()]
    except OSError:  # not Linux
        return None
    quotas = [
        quota
        for _, controllers, group in groups
        if controllers == "" or "cpu" in controllers.split(",")
        for folder in _cgroup_folders(mounts, group, version=1 if controllers else 2)
        if (quota := _read_quota(root / folder.relative_to("/"))) is not None
    ]
    return min(quotas, default=None)


def _cgroup_folders(mounts: list[list[str]], group: str, version: int) -> Iterator[Path]:
    """Yield the folders of a cgroup and of those that contain it, as far as they are mounted."""
    for mount in mounts:
        # ID, parent, device, root of the mount in the cgroup tree, mount point, options …, "-", type, source, options
        kind, options = mount[mount.index("-") + 1], mount[-1].split(",")
        if kind != ("cgroup2" if version == 2 else "cgroup") or (version == 1 and "cpu" not in options):
            continue
        mount_root, mount_point = Path(mount[3]), Path(mount[4])
        inside = Path(group).relative_to(mount_root) if Path(group).is_relative_to(mount_root) else Path()
        yield mount_point / inside
        for parent in inside.parents:
            yield mount_point / parent


def _read_quota(folder: Path) -> float | None:
    """Return the quota of one cgroup in CPUs: `cpu.max` in version 2, two files in version 1."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if quota != "max" and int(quota) > 0 and int(period) > 0 else None
    except (OSError, ValueError):  # the top cgroup has no such files
        return None


def wait_policy() -> str:
    """Describe what a waiting thread does."""
    if ThreadSettings.torch_was_first:
        return "waiting threads spin, because torch was imported before regard"
    for name in WAIT_SETTINGS:
        if name in os.environ:
            return f"waiting threads: {name}={os.environ[name]}"
    return "waiting threads spin"


def describe_threads() -> str:
    """Describe the number of CPU threads, where it comes from, and what waiting threads do, for `regard info`."""
    import torch

    quota = cgroup_quota()
    limits = [f"{available_cpus()} CPUs by affinity", "no cgroup quota" if quota is None else f"cgroup quota {quota:g}"]
    if ThreadSettings.requested is not None:
        limits.append(f"--threads {ThreadSettings.requested}")
    elif "OMP_NUM_THREADS" in os.environ:
        limits.append(f"OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']}")
    return f"{torch.get_num_threads()} ({', '.join(limits)}); {wait_policy()}"


@cache
def warn_if_torch_was_first() -> None:
    """Warn once if torch did not read the settings, and several threads are about to compute."""
    import torch

    if ThreadSettings.torch_was_first and torch.get_num_threads() > 1:
        warnings.warn(
            "torch was imported before regard, so its waiting threads spin: beside other programs on this machine, "
            f"{torch.get_num_threads()} threads can be slower than one. Import regard before torch, or set "
            f"GOMP_SPINCOUNT={SPIN_COUNT} in the environment",
            RuntimeWarning,
            stacklevel=3,
        )
