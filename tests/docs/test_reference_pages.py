"""The references of recipe keys and commands are up to date with the code (`make docs` writes them again)."""

import inspect
import re
from pathlib import Path

import make_reference_pages as pages
import pytest

from regard.cli.main import app
from regard.training.recipe.schema import Recipe

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", pages.PAGES)
def test_page_is_fresh(name):
    assert (DOCS / name).read_text(encoding="utf-8") == pages.PAGES[name](), "run `make docs`"


def sections(owner=Recipe, path=()):
    """Every section of a recipe, with its path."""
    yield path, owner
    for name, field in owner.model_fields.items():
        for inner in pages.section_classes(field.annotation):
            yield from sections(inner, (*path, name))


def test_every_key_is_described_and_listed():
    page = pages.recipe_page()
    missing = []
    for path, section in sections():
        for name, field in section.model_fields.items():
            if name != "kind" and path and not field.description:
                missing.append(".".join((*path, name)))
            one_variant = name == "kind" and pages.variant_key(section) in page
            if path and not one_variant:
                assert f"| `{name}` |" in page, name
    assert not missing, f"no sentence under {missing}"


def test_a_heading_for_each_section_and_variant():
    headings = re.findall(r"^##+ (.*)$", pages.recipe_page(), flags=re.MULTILINE)
    assert len(headings) == len(set(headings))
    for expected in ('`[training] optimizer` with `kind = "muon"`', "`[network]` with `load = …`", "`[data]`"):
        assert expected in headings


def test_every_argument_and_option_of_a_command_is_listed():
    page = pages.command_page()
    for command in app.registered_commands:
        block = re.search(rf"^## regard {command.name}\n(.*?)(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL)[1]
        parameters = inspect.signature(command.callback, eval_str=True).parameters
        assert len(re.findall(r"^\| `", block, flags=re.MULTILINE)) == len(parameters)
    for expected in ("`--json`", "`-q, --quiet`", "| **Train** | |", "[translate](#regard-translate)"):
        assert expected in page
    assert "--as-json" not in page
