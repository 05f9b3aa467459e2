"""Run commands: in this process, or in a subprocess as a shell does."""

import subprocess
import sys
from dataclasses import dataclass

from typer.testing import CliRunner

from regard.cli.main import app

COMMAND = [sys.executable, "-c", "from regard.cli.main import main; main()"]


@dataclass
class Called:
    code: int
    out: str
    err: str

    @property
    def lines(self):
        return self.out.split("\n")[:-1]


def run(*words, given=None):
    """Run a command in this process. Exceptions of the command are raised, as `main` receives them."""
    result = CliRunner().invoke(app, [str(word) for word in words], input=given)
    if isinstance(result.exception, Exception):
        raise result.exception
    return Called(result.exit_code, result.stdout, result.stderr)


def shell(*words, **more):
    """Run a command in a subprocess."""
    done = subprocess.run([*COMMAND, *map(str, words)], capture_output=True, text=True, check=False, **more)
    return Called(done.returncode, done.stdout, done.stderr)
