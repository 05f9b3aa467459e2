"""The process exits without teardown, and loses no output."""

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
atexit.register(print, "at exit")
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
from regard.cli.main import exit_process
sys.stdout.write("a few words")
exit_process(1)
"""


def test_nothing_is_waited_for():
    result = call(NEVER, "--help")
    assert result.returncode == 0
    assert "too late" not in result.stdout


def test_whoever_reads_no_more_makes_no_success_of_a_failure():
    reading, writing = os.pipe()
    os.close(reading)
    result = call(FAILED, to=writing)
    os.close(writing)
    assert (result.returncode, result.stderr) == (1, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_streams_may_be_closed(closed):
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(PLAIN)} --help {closed}"
    result = subprocess.run(command, shell=True, check=False, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")


def call(script, *words, to=subprocess.PIPE):
    """Run a script with buffered output, whatever the environment has set."""
    command, usual = [sys.executable, "-c", script, *words], {**os.environ, "PYTHONUNBUFFERED": ""}
    return subprocess.run(command, check=False, stdout=to, stderr=subprocess.PIPE, text=True, timeout=60, env=usual)


def test_what_was_written_is_there():
    result = call(PLAIN, "recipes")
    assert result.returncode == 0
    assert result.stdout.endswith("\n")
    assert "translate" in result.stdout


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["nonsense"], 2), (["translate", "no/such", "text"], 1)])
def test_the_exit_code_is_told(words, code):
    assert call(PLAIN, *words).returncode == code


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_told():
    with Path("/dev/full").open("w") as full:
        result = call(PLAIN, "recipes", to=full)
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert "No space left on device" in result.stderr


@pytest.mark.parametrize(("script", "last"), [(AT_WORK, "done"), (TRACED, "at exit")])
def test_whoever_is_at_work_or_watches_is_waited_for(script, last):
    result = call(script, "--help")
    assert result.returncode == 0
    assert result.stdout.splitlines()[-1] == last
