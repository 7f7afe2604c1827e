"""Links in the documentation lead to files and headings that exist, and README.md lists every document."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_language import ROOT, tracked

DOCUMENTS = tracked("*.md")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a document."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(path: Path) -> list[str]:
    """Return the relative links of a document that lead nowhere."""
    found = []
    for link in LINK.findall(FENCED.sub("", path.read_text())):
        if re.match(r"\w+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    assert broken(path) == []


def test_a_link_to_a_file_or_a_heading_that_does_not_exist_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A page\n\n## What's in it?\n\n[1](#whats-in-it) [2](#nothing) [3](gone.md) [4](page.md#a-page)\n"
    )
    assert broken(page) == ["#nothing", "gone.md"]


def test_the_readme_and_the_guide_to_training_list_every_document() -> None:
    lists = (ROOT / "README.md", ROOT / "docs" / "training.md")
    links = [(page.parent, link) for page in lists for link in LINK.findall(page.read_text())]
    linked = {(folder / link.partition("#")[0]).resolve() for folder, link in links}
    documents = [path for path in DOCUMENTS if "docs" in path.relative_to(ROOT).parts]
    assert documents
    assert [path for path in documents if path not in linked] == []
