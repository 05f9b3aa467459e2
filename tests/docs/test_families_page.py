"""docs/families.md is up to date with the configs (`make docs` writes it again)."""

from pathlib import Path

import make_families_page as page

from regard.families.registry import FAMILIES

DOCS = Path(__file__).parents[2] / "docs"


def test_page_is_fresh():
    assert (DOCS / "families.md").read_text(encoding="utf-8") == page.markdown()


def test_every_family_has_a_row_a_box_and_a_known_parent():
    titles = [family.info.title for family in FAMILIES.values() if family.presets] + ["Transformer", "GPT-3"]
    rows = [line.split(" | ")[1] for line in page.markdown().splitlines() if line.startswith("| 20")]
    assert sorted(rows) == sorted(titles)
    assert {box.row.info.title for box in page.tree_boxes()} == set(titles)
    for family in FAMILIES.values():
        assert family.info.parent in titles
