"""Ctrl-C ends a command with exit code 130, also while packages are imported."""

import signal
import subprocess
import sys

import pytest

SWALLOWED = """
try:
    import os, signal
    os.kill(os.getpid(), signal.SIGINT)
    import math
except BaseException:
    pass
"""
IN_AN_IMPORT = """
from regard.cli.interrupt import handle_interrupts
handle_interrupts()
print("before")
import swallowing
print("went on")
"""
AT_A_LOOKUP = """
import os, signal, sys

class Finder:
    left = {moment}

    def find_spec(self, *_):
        Finder.left -= 1
        if Finder.left == 0:
            os.kill(os.getpid(), signal.SIGINT)

from regard.cli.entry import main
sys.meta_path.insert(0, Finder())
sys.argv = ["regard", "translate", "no/such/model", "text"]
main()
"""


def call(code, folder):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder, timeout=120
    )


def test_an_import_cannot_swallow_it(tmp_path):
    (tmp_path / "swallowing.py").write_text(SWALLOWED)
    done = call(IN_AN_IMPORT, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "before\n", "interrupted\n")


@pytest.mark.parametrize("moment", [1, 40, 250, 700])
def test_at_any_import_of_a_command(tmp_path, moment):
    done = call(AT_A_LOOKUP.format(moment=moment), tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_job_in_the_background_ignores_it(tmp_path):
    code = IN_AN_IMPORT.replace("from", "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nfrom", 1)
    (tmp_path / "swallowing.py").write_text(SWALLOWED)
    assert call(code, tmp_path).stdout == "before\nwent on\n"


def test_elsewhere_it_is_an_exception():
    from regard.cli import interrupt

    before = signal.getsignal(signal.SIGINT)
    try:
        interrupt.handle_interrupts()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
