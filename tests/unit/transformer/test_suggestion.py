"""Suggestions for misspelt names."""

import ast
from pathlib import Path

import pytest

import regard
from regard.transformer.suggestion import closest, did_you_mean


@pytest.mark.parametrize(
    ("name", "expected"), [("stpes", " (did you mean 'steps'?)"), ("steps", " (did you mean 'steps'?)"), ("xyz", "")]
)
def test_the_most_similar_name_is_suggested(name, expected):
    candidates = {"step": 1, "steps": 2, "batch": 3}
    assert did_you_mean(name, candidates) == expected
    assert closest(name, iter(candidates)) == ("steps" if expected else None)


def test_there_is_one_place_for_suggestions():
    """Every other module uses this one."""
    root = Path(regard.__file__).parent
    imports = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom) and "difflib" in ast.unparse(node)
    }
    assert imports == {"transformer/suggestion.py"}
