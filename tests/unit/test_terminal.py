"""Control characters of data never reach a terminal or a log, and a reader that goes away is no success."""

import os
import pty
import subprocess
import sys

import pytest
from unit.cli.runner import COMMAND, shell
from unit.training.tiny_data import RECIPE, write_recipe

from regard import terminal
from regard.checkpoint.report import LoadReport, LoadStatus
from regard.training.run.reporter import LineReporter
from regard.training.run.run_dir import RunDir

HOSTILE = "\x1b]0;title\x07\x9b2Jred\rerror: forged\nerror: forged"


def has_controls(text):
    return bool(terminal.CONTROL_CHARACTERS.search(text))


def test_controls_are_escaped_and_text_is_not():
    assert terminal.escape_controls("Straße\t東京 \U0001f600\n") == "Straße\t東京 \U0001f600\n"
    escaped = terminal.escape_line(HOSTILE)
    assert escaped == "\\x1b]0;title\\x07\\x9b2Jred\\x0derror: forged\\nerror: forged"
    assert terminal.escape_line(escaped) == escaped
    assert terminal.indent_message("a\nerror: b\n  c") == "a\n  error: b\n  c"


def test_log_and_messages_of_a_run(tmp_path, capsys):
    LineReporter(RunDir(tmp_path)).log(HOSTILE)
    for text in (capsys.readouterr().err, (tmp_path / "log.txt").read_text()):
        assert text.count("\n") == 1
        assert not has_controls(text)


def test_names_of_tensors():
    report = LoadReport("folder")
    report.add(HOSTILE, (HOSTILE,), LoadStatus.MISSING, HOSTILE)
    assert not has_controls(report.render())
    assert "\nerror" not in report.render()


def test_an_error_cannot_forge_another(tmp_path):
    (tmp_path / "data.tsv").write_text(f"{HOSTILE}\n")
    called = shell("doctor", "--task", "classify", tmp_path / "data.tsv\nerror: forged")
    assert called.code != 0
    assert "\nerror: forged" not in called.err + called.out
    name = "recipe\x1b[31m.toml\nerror: forged"
    called = shell("train", name)
    assert called.code == 2
    assert called.err.startswith("error: recipe not found: recipe\\x1b[31m.toml\n  error: forged")


def test_labels_in_the_summary_of_the_doctor(tmp_path):
    rows = [f"text {number}\t{label}" for number in range(40) for label in ("a\x1b[2J", "b\x9b2J")]
    (tmp_path / "data.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    called = shell("doctor", "--task", "classify", tmp_path / "data.tsv")
    assert "a\\x1b[2J 40" in called.out
    assert not has_controls(called.out + called.err)


@pytest.mark.parametrize("tty", [True, False])
def test_results_are_escaped_on_a_terminal_only(tty):
    code = "import sys; from regard.terminal import install_streams; install_streams(); sys.stdout.write('a\\x1b[2Jb')"
    if not tty:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "a\x1b[2Jb"
        return
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", code], stdout=theirs, check=True)
    os.close(theirs)
    assert os.read(ours, 100) == b"a\\x1b[2Jb"
    os.close(ours)


@pytest.mark.parametrize("optional", [True, False])
def test_standard_output_without_a_reader_is_an_error_and_standard_error_is_not(optional):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        stream = terminal.TerminalStream(pipe, escapes=True, optional=optional)
        stream.write("a")
        if optional:
            stream.flush()
        else:
            with pytest.raises(BrokenPipeError):
                stream.flush()
        assert stream.reader_gone
        stream.write("it is the null device now")
        stream.flush()


def test_training_goes_on_when_standard_error_has_no_reader(tmp_path):
    """`regard train recipe.toml 2>&1 >/dev/null | head -1`."""
    recipe = write_recipe(tmp_path, RECIPE.replace("steps = 24", "steps = 4"))
    command = [*COMMAND, "train", str(recipe), "--output", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr.readline()
        process.stderr.close()
        assert process.wait(timeout=300) == 0
    assert (tmp_path / "run" / "best" / "model.safetensors").is_file()
    assert (tmp_path / "run" / "checkpoints" / "step-00000004").is_dir()


def test_results_without_a_standard_output_are_an_error():
    script = f"{' '.join([sys.executable, '-c', repr(COMMAND[2])])} recipes >&-"
    done = subprocess.run(script, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: standard output is closed: the results have nowhere to go\n")
