"""CONTRIBUTING.md: the functions on its walks exist where it says, and its layers are those that are checked."""

import ast
import re
import tomllib
from pathlib import Path

from code_blocks import code_blocks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def names_of(file):
    """The classes, functions and constants of a file, methods included."""
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def test_names_are_in_the_files_beside_them():
    found = re.findall(r"`(\w+)`s?\s+(?:\(|in )`((?:regard|benchmarks)/[\w/]+\.py)`", PAGE)
    assert len(found) > 30
    for name, file in found:
        assert name in set(names_of(file)), f"{file} has no {name}"


def test_paths_exist():
    for path in re.findall(r"`((?:regard|tests|docs|benchmarks|\.github)/[\w/.-]*)`", PAGE):
        assert (ROOT / path).exists(), path


def test_layers_are_those_of_the_import_rules():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = [layer.replace("regard.", "") for layer in contracts[0]["layers"]]
    (block,) = [block for block in code_blocks(PAGE) if block.startswith("cli")]
    assert [" | ".join(line.split(" | ")) for line in block.splitlines()] == layers, "copy the layers of pyproject.toml"
