"""What docstrings cite is there: the page, and the heading on it."""

from __future__ import annotations

import re
from pathlib import Path

import noetic_nb as nn

PACKAGE = Path(nn.__file__).parent
CITATION = re.compile(r'(docs/behaviour/\w+\.md), "([^"]+)"')


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
