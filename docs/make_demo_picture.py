"""Draw docs/demo.svg: the terminal of a real `regard demo` and of commands on the model that it trained.

    python docs/make_demo_picture.py           # trains the demo's model (two minutes on two cores)

rich writes the picture. What a command prints is shown as it is; the lines of the training log are left out where `…`
stands.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).parent
COLUMNS = 98
HEAD, TAIL = 5, 22
"""Lines of the demo that are shown, from its start and from its end."""
COMMANDS = (
    'regard translate runs/demo/run/best "le 14 juillet 1989"',
    'regard translate runs/demo/run/best "the fifth of March, 1987" --beam 4 --n-best 2',
    'regard tokenize runs/demo/run/best "May 1, 2024"',
)
TEMPLATE = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; white-space: pre; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g></svg>
"""
"""rich's picture of a terminal without its web fonts: a picture fetches nothing."""


def run(command: str, folder: Path) -> list[str]:
    """Run a command of regard; return what a terminal would show."""
    arguments = shlex.split(command)[1:]
    call = [sys.executable, "-c", "from regard.cli.main import main; main()", *arguments]
    environment = {**os.environ, "COLUMNS": str(COLUMNS)}
    done = subprocess.run(
        call, cwd=folder, env=environment, text=True, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.stdout.rstrip("\n").split("\n")


def draw(folder: Path) -> str:
    """The picture of the demo in this folder and of the commands after it."""
    with (folder / "null").open("w", encoding="utf-8") as null:
        console = Console(record=True, width=COLUMNS, file=null, force_terminal=True, legacy_windows=False)
        demo = run("regard demo", folder)
        shown = demo if len(demo) <= HEAD + TAIL else [*demo[:HEAD], "…", *demo[-TAIL:]]
        print_command(console, "regard demo", shown)
        for command in COMMANDS:
            print_command(console, command, run(command, folder))
    return console.export_svg(title="regard", code_format=TEMPLATE, unique_id="regard")


def print_command(console: Console, command: str, lines: list[str]) -> None:
    console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where the demo is trained. Default: a temporary folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        picture = draw(args.folder or Path(temporary))
    lines = (line.rstrip() for line in picture.split("\n"))
    DOCS.joinpath("demo.svg").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
