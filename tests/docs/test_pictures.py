"""The pictures of the docs are drawn from the configs and the recorded measurements; no box is left by its text."""

import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import make_families_page as page
import make_figures
import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TERMINAL = {"demo.svg", "make_demo_picture.py"}
"""A terminal, which rich exports into its template."""


def texts(path):
    return [element.text for element in ET.parse(path).iter() if element.tag.endswith("}text")]


@pytest.mark.parametrize("name", [*make_figures.RUNS, "growth", "families"])
def test_a_picture_is_fresh(name, tmp_path):
    """Its words are those that are drawn now. (The coordinates depend on the version of matplotlib.)"""
    drawn = tmp_path / f"{name}.svg"
    if name == "growth":
        make_figures.draw_growth(drawn)
    elif name == "families":
        page.draw_tree(drawn)
    else:
        make_figures.draw_run(name, drawn)
    assert texts(drawn) == texts(DOCS / drawn.name)
    assert "matplotlib" in (DOCS / drawn.name).read_text(encoding="utf-8")[:2000]


def test_there_are_no_other_pictures():
    found = {path.name for path in DOCS.glob("*.svg")} - TERMINAL
    assert found == {f"{name}.svg" for name in (*make_figures.RUNS, "growth", "families", "vectors")}


def test_nothing_writes_svg_by_hand():
    sources = [*ROOT.glob("regard/**/*.py"), *ROOT.glob("benchmarks/*.py"), *ROOT.glob("docs/*.py")]
    assert len(sources) > 100
    marks = ("<svg", "<polyline", "<rect ", "text-anchor")
    by_hand = {path.name for path in sources if any(mark in path.read_text(encoding="utf-8") for mark in marks)}
    assert by_hand <= TERMINAL


def test_every_family_fits_its_box_and_no_boxes_touch():
    boxes = page.tree_boxes()
    for box in boxes:
        assert page.text_width(box.row.info.title) < box.width
    lines = [box.y for box in boxes]
    assert min(b - a for a, b in pairwise(lines)) > page.BOX_HEIGHT


def test_panels_of_growth_have_their_own_axes_with_units():
    found = texts(DOCS / "growth.svg")
    assert {"sequences in a batch", "tokens of each source", "tokens per second", "milliseconds", "MB"} <= set(found)
    assert "64" in found
    assert "2,500" not in found
