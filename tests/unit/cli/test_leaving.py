"""A process with nothing left to do ends at once, and loses nothing."""

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


def call(script, *words, to=subprocess.PIPE):
    return subprocess.run(
        [sys.executable, "-c", script, *words], check=False, stdout=to, stderr=subprocess.PIPE, text=True, timeout=60
    )


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
    assert "error: " in found.stderr
    assert "No space left on device" in found.stderr


@pytest.mark.parametrize(("script", "last"), [(AT_WORK, "done"), (TRACED, "told")])
def test_whoever_is_at_work_or_watches_is_waited_for(script, last):
    found = call(script, "--help")
    assert found.returncode == 0
    assert found.stdout.splitlines()[-1] == last
