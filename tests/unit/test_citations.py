"""What docstrings cite is there: the page, and the heading on it."""

from __future__ import annotations

import re
from pathlib import Path

import noetic_nb as nn

PACKAGE = Path(nn.__file__).parent
CITATION = re.compile(r'(docs/(?:behaviour|decisions)/\w+\.md), "([^"]+)"')


def test_every_cited_heading_is_on_its_page() -> None:
    cited = {found for path in PACKAGE.rglob("*.py") for found in CITATION.findall(path.read_text(encoding="utf-8"))}
    missing = {
        (page, heading)
        for page, heading in cited
        if not re.search(
            rf"^#+ {re.escape(heading)}$", (PACKAGE.parent / page).read_text(encoding="utf-8"), re.MULTILINE
        )
    }

    assert cited
    assert missing == set()


def test_every_file_that_the_architecture_page_names_is_there() -> None:
    root = PACKAGE.parent
    page = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = {name for name in re.findall(r"`([\w/]+\.(?:py|pyi|json))`", page) if "/" in name}

    assert len(named) > 30
    assert [name for name in sorted(named) if not (PACKAGE / name).exists() and not (root / name).exists()] == []


def test_every_link_between_the_pages_leads_somewhere() -> None:
    root = PACKAGE.parent
    pages = [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").rglob("*.md")]
    dead = [
        f"{page.relative_to(root)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]

    assert dead == []
