"""A process with nothing left to do ends at once, and loses nothing."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

AT_WORK = """
import threading, time
from regard.cli.main import main

def work():
    time.sleep(0.5)
    print("done", flush=True)

threading.Thread(target=work).start()
main()
"""
TRACED = """
import atexit, sys
from regard.cli.main import main
atexit.register(print, "told")
sys.setprofile(lambda *_: None)
main()
"""
PLAIN = "from regard.cli.main import main; main()"
NEVER = """
import atexit
from regard.cli.main import main
atexit.register(print, "too late")
main()
"""
FAILED = """
import sys
from regard.cli.main import leave
sys.stdout.write("a few words")
leave(1)
"""


def test_nothing_is_waited_for():
    found = call(NEVER, "--help")
    assert found.returncode == 0
    assert "too late" not in found.stdout


def test_whoever_reads_no_more_makes_no_success_of_a_failure():
    reading, writing = os.pipe()
    os.close(reading)
    found = call(FAILED, to=writing)
    os.close(writing)
    assert (found.returncode, found.stderr) == (1, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_streams_may_be_closed(closed):
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(PLAIN)} --help {closed}"
    found = subprocess.run(command, shell=True, check=False, capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stderr) == (0, "")


def call(script, *words, to=subprocess.PIPE):
    """Run a script; what it writes is held back until it ends, as usual, whatever the environment says."""
    command, usual = [sys.executable, "-c", script, *words], {**os.environ, "PYTHONUNBUFFERED": ""}
    return subprocess.run(command, check=False, stdout=to, stderr=subprocess.PIPE, text=True, timeout=60, env=usual)


def test_what_was_written_is_there():
    found = call(PLAIN, "recipes")
    assert found.returncode == 0
    assert found.stdout.endswith("\n")
    assert "translate" in found.stdout


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["nonsense"], 2), (["translate", "no/such", "text"], 1)])
def test_the_exit_code_is_told(words, code):
    assert call(PLAIN, *words).returncode == code


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
def test_a_full_disk_is_told():
    with Path("/dev/full").open("w") as full:
        found = call(PLAIN, "recipes", to=full)
    assert found.returncode == 1
    assert found.stderr.startswith("error: ")
    assert "No space left on device" in found.stderr


@pytest.mark.parametrize(("script", "last"), [(AT_WORK, "done"), (TRACED, "told")])
def test_whoever_is_at_work_or_watches_is_waited_for(script, last):
    found = call(script, "--help")
    assert found.returncode == 0
    assert found.stdout.splitlines()[-1] == last
