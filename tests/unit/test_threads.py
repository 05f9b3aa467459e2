"""Number of threads from the affinity mask and cgroup files; settings that torch's OpenMP library really reads."""

import os
import subprocess
import sys

import pytest
from unit.cli.runner import run, shell

from regard import threads
from regard.cli.main import app
from regard.threads import SPIN_COUNT, cgroup_quota

V2_MOUNT = "31 23 0:28 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNTS = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def system_v2(root, group, files, mount_root="/"):
    mounts = V2_MOUNT.format(root=mount_root)
    write(root, {"proc/self/mountinfo": mounts, "proc/self/cgroup": f"0::{group}\n"})
    write(root, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    return cgroup_quota(root)


def system_v1(root, group, files, mount_root="/"):
    groups = f"4:memory:/elsewhere\n3:cpu,cpuacct:{group}\n0::/\n"
    write(root, {"proc/self/mountinfo": V1_MOUNTS.format(root=mount_root), "proc/self/cgroup": groups})
    write(root, {f"sys/fs/cgroup/cpu,cpuacct/{name}": text for name, text in files.items()})
    return cgroup_quota(root)


def test_version_2_takes_the_lowest_limit_of_all_enclosing_groups(tmp_path):
    limits = {"a/cpu.max": "400000 100000", "a/b/cpu.max": "150000 100000", "a/b/c/cpu.max": "max 100000"}
    assert system_v2(tmp_path, "/a/b/c", limits) == 1.5


@pytest.mark.parametrize("text", ["max 100000", "", "nonsense", "0 100000"])
def test_version_2_without_a_limit(tmp_path, text):
    assert system_v2(tmp_path, "/a", {"a/cpu.max": text}) is None


def test_version_2_in_a_container_that_sees_its_own_group_as_the_root(tmp_path):
    assert system_v2(tmp_path, "/", {"cpu.max": "50000 100000"}) == 0.5


def test_version_2_in_a_container_that_sees_the_path_of_the_host(tmp_path):
    assert system_v2(tmp_path, "/docker/1f", {"cpu.max": "300000 100000"}, mount_root="/docker/1f") == 3
    cgroup_quota.cache_clear()
    assert system_v2(tmp_path, "/../other", {}, mount_root="/docker/1f") == 3, "outside of what is mounted: the mount"


def test_version_1(tmp_path):
    limits = {"docker/1f/cpu.cfs_quota_us": "200000\n", "docker/1f/cpu.cfs_period_us": "50000\n"}
    whole = {"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}
    assert system_v1(tmp_path, "/docker/1f", limits | whole) == 4


def test_version_1_without_a_limit(tmp_path):
    assert system_v1(tmp_path, "/", {"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}) is None


def test_a_system_without_cgroups(tmp_path):
    assert cgroup_quota(tmp_path) is None


@pytest.mark.parametrize(
    ("cpus", "quota", "expected"), [(4, None, 4), (4, 2.0, 2), (4, 1.2, 2), (2, 3.5, 2), (8, 0.1, 1)]
)
def test_the_default_is_the_smaller_of_affinity_and_quota(monkeypatch, cpus, quota, expected):
    monkeypatch.setattr(threads, "available_cpus", lambda: cpus)
    monkeypatch.setattr(threads, "cgroup_quota", lambda: quota)
    assert threads.default_threads() == expected


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity masks on this system")
def test_a_process_on_one_cpu_uses_one_thread():
    code = "import regard, os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
    code += "from regard.threads import default_threads; import torch\n"
    code += "assert default_threads() == 1 == torch.get_num_threads()"
    assert python(code).returncode == 0


def python(code, **environment):
    """Run Python without the settings of this test run."""
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "MKL_", "RAYON_"))
    }
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=plain | environment, capture_output=True, text=True, check=False)


READ_BY_LIBGOMP = {"OMP_DISPLAY_ENV": "verbose"}
"""libgomp then prints what it uses when torch loads it."""


def test_torch_reads_the_spin_count_that_regard_chose():
    display = python("import regard, torch", **READ_BY_LIBGOMP).stderr
    assert f"GOMP_SPINCOUNT = '{SPIN_COUNT}'" in display


@pytest.mark.parametrize(("name", "value", "line"), [
    ("GOMP_SPINCOUNT", "77", "GOMP_SPINCOUNT = '77'"),
    ("OMP_WAIT_POLICY", "active", "OMP_WAIT_POLICY = 'ACTIVE'"),
])  # fmt: skip
def test_what_the_user_set_is_kept(name, value, line):
    result = python("import regard, torch, os; print(sorted(os.environ))", **READ_BY_LIBGOMP, **{name: value})
    assert line in result.stderr
    assert {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} - {name} & set(result.stdout.split("'")) == set()


def test_a_quota_lowers_the_number_of_threads_of_torch_and_tokenizers():
    code = (
        "from pathlib import Path; import os\n"
        "read, exists = Path.read_text, Path.exists\n"
        "Path.read_text = lambda path, *_: {'mountinfo': '1 0 0:1 / /g rw - cgroup2 cgroup2 rw', 'cgroup': '0::/',"
        " 'cpu.max': '100000 100000'}[path.name]\n"
        "Path.exists = lambda path: path.name == 'cpu.max'\n"
        "os.sched_getaffinity = lambda _: {0, 1, 2, 3}\n"
        "import regard\n"
        "Path.read_text, Path.exists = read, exists\n"
        "import torch; print(torch.get_num_threads(), os.environ['RAYON_NUM_THREADS'])"
    )
    assert python(code).stdout.split() == ["1", "1"]
    assert python(code, OMP_NUM_THREADS="2").stdout.split() == ["2", "1"], "what the user set is kept"


LOAD_TWICE = """
import warnings{}
import regard
from regard.threads import describe_threads, warn_if_torch_was_first
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    warn_if_torch_was_first(), warn_if_torch_was_first()
print([str(each.message) for each in found], describe_threads(), sep="\\n")
"""


def test_torch_that_was_imported_first_is_reported_once():
    warnings, description = python(LOAD_TWICE.format(", torch"), OMP_NUM_THREADS="2").stdout.splitlines()
    assert warnings.count("imported before regard") == 1
    assert f"GOMP_SPINCOUNT={SPIN_COUNT}" in warnings, "the remedy"
    assert "spin, because torch was imported before regard" in description
    for first, environment in ((", os", {"OMP_NUM_THREADS": "2"}), (", torch", {"OMP_NUM_THREADS": "1"})):
        assert python(LOAD_TWICE.format(first), **environment).stdout.splitlines()[0] == "[]", "nothing is lost"


def test_the_description_has_the_number_and_where_it_comes_from():
    code = "import regard; from regard.threads import describe_threads; print(describe_threads())"
    assert python(code, OMP_NUM_THREADS="1").stdout.startswith("1 (")
    assert "OMP_NUM_THREADS=1" in python(code, OMP_NUM_THREADS="1").stdout
    assert f"GOMP_SPINCOUNT={SPIN_COUNT}" in python(code).stdout


def test_every_command_has_the_option():
    for command in app.registered_commands:
        assert "--threads" in run(command.name, "--help").out, command.name


def test_the_option_sets_the_threads_of_torch_and_tokenizers():
    code = (
        "import sys, json, os\n"
        "from regard.cli import show; from regard.cli.main import make_app, app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        "import torch; print(torch.get_num_threads(), os.environ['RAYON_NUM_THREADS'])"
    )
    command = f"import sys; sys.argv[1:] = ['recipes', '--threads', '1']\n{code}"
    assert python(command, OMP_NUM_THREADS="2").stdout.splitlines()[-1] == "1 1"


def test_the_option_wins_over_the_recipe(tmp_path):
    (tmp_path / "text").write_text("a b c\n" * 40)
    recipe = 'task = "generate"\n[data]\ntrain = ["text"]\n[tokenizer]\nkind = "bpe"\nsize = 300\n'
    recipe += '[network]\nfamily = "gpt2"\nlayers = 1\nmodel_dim = 8\nheads = 2\n[training]\nsteps = 1\nthreads = 2\n'
    (tmp_path / "recipe.toml").write_text(recipe)
    dry_run = shell("train", tmp_path / "recipe.toml", "--dry-run", "--threads", "1")
    assert "threads = 1" in dry_run.out, dry_run.err
