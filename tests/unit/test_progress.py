"""The progress display: on a terminal only, on standard error only."""

import os
import pty
import subprocess
import sys

import pytest
from unit.tasks import models

LOOP = """
import sys
from regard.progress import Progress

with Progress("reading", total={total}) as progress:
    for number in range(3):
        progress.advance()
        progress.print(f"note {{number}}")
        sys.stdout.write(f"result {{number}}\\n")
print("rich" in sys.modules)
"""
REPORTER = """
from regard.training.run.reporter import make_reporter

reporter = make_reporter(None)
reporter.begin(0, 2)
for step in (1, 2):
    reporter.update(step, 2, loss=1.0, count=9)
reporter.log_evaluation({"step": 2}, {"loss": 1.0})
reporter.end()
"""
COMMAND = "from regard.cli.main import main; main()"


def run(code, *words, terminal):
    """Run Python code; return its standard output and standard error, which is a pseudo terminal or a pipe."""
    call = [sys.executable, "-c", code, *map(str, words)]
    if not terminal:
        done = subprocess.run(call, capture_output=True, check=True, timeout=60)
        return done.stdout, done.stderr
    reading, writing = pty.openpty()
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=writing, env=os.environ | {"TERM": "xterm"}) as process:
        os.close(writing)
        shown = bytearray()
        try:
            while part := os.read(reading, 65536):
                shown += part
        except OSError:  # the terminal was closed at the other end
            pass
        output = process.stdout.read()
    os.close(reading)
    assert process.returncode == 0, shown
    return output, bytes(shown)


@pytest.mark.parametrize("total", [3, None])
def test_nothing_is_shown_without_a_terminal(total):
    output, errors = run(LOOP.format(total=total), terminal=False)
    assert output == b"result 0\nresult 1\nresult 2\nFalse\n"
    assert errors == b"note 0\nnote 1\nnote 2\n"


@pytest.mark.parametrize("total", [3, None])
def test_a_terminal_shows_a_bar_and_standard_output_is_left_alone(total):
    output, shown = run(LOOP.format(total=total), terminal=True)
    assert output == b"result 0\nresult 1\nresult 2\nTrue\n"
    assert b"\x1b[" in shown
    assert b"reading" in shown
    assert b"note 2" in shown
    assert (b"100%" in shown) == (total is not None)
    assert b"result" not in shown


@pytest.mark.parametrize("terminal", [False, True])
def test_translations_go_to_standard_output_only(terminal, tmp_path):
    """Also while the progress bar is on the terminal."""
    texts = tmp_path / "texts.txt"
    texts.write_text("the dog runs\na man sleeps\nthe dog\n")
    folder = models.translating(tmp_path / "model")
    output, shown = run(COMMAND, "translate", folder, texts, "--max-new-tokens", 4, "--json", terminal=terminal)
    assert len(output.splitlines()) == 3
    assert b"\x1b" not in output
    assert b"\r" not in output
    assert (b"\x1b" in shown) == terminal
    assert b'"text"' not in shown


@pytest.mark.parametrize("terminal", [False, True])
def test_a_run_reports_lines_and_on_a_terminal_a_bar(terminal):
    output, shown = run(REPORTER, terminal=terminal)
    assert output == b""
    assert b"step 2, validation: loss 1.0000" in shown
    assert (b"\x1b" in shown) == (b"100%" in shown) == terminal
