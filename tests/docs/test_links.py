"""No dead link inside the repository: files, headings and anchors that the pages link to exist."""

import re
import unicodedata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob(".github/**/*.md")])
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")


def prose(text):
    """The page without code, where brackets are no links."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def anchors(page):
    """The ids of a page: its headings, as GitHub makes them, and its own."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ +(.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE)
    return {heading_id(heading) for heading in headings} | set(re.findall(r"<a id=\"([^\"]+)\"", text))


def heading_id(heading):
    letters = (c for c in heading.strip().lower() if c in " -_" or unicodedata.category(c)[0] in "LN")
    return "".join(letters).replace(" ", "-")


def dead_links(page):
    for match in LINK.finditer(prose(page.read_text(encoding="utf-8"))):
        target = match[1] or match[2]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"{target}: no such file"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            yield f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert not list(dead_links(page))


def test_dead_links_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One `two`: three\n[a](#one-two-three) [b](#four) [c](page.md) [d](gone.md) ![e](gone.svg)\n`[f](x)`"
    )
    assert list(dead_links(page)) == [
        "#four: no such heading", "gone.md: no such file", "gone.svg: no such file"
    ]  # fmt: skip


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    missing = [page.name for page in (ROOT / "docs").glob("*.md") if f"({page.name})" not in index]
    assert missing == ["README.md"]
