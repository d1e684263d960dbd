"""The glossary: one plain sentence for each term, a place that explains it, and pages that use it."""

from __future__ import annotations

import re

from tests.docs.site_modules import ROOT

DOCS = ROOT / "docs"
PAGE = DOCS / "glossary.md"
ROWS = re.findall(r"^\| (?!Term \|)(.+?) \| (.+?) \| (.+?) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
TERMS = [term for term, _, _ in ROWS]


def test_forty_terms_stand_in_alphabetical_order() -> None:
    assert len(TERMS) == len(set(TERMS)) == 40
    assert sorted(TERMS, key=str.lower) == TERMS


def test_each_term_has_one_sentence_of_at_most_25_words() -> None:
    faulty = [
        term
        for term, meaning, _ in ROWS
        if not re.fullmatch(r"[A-Z](?:[^.;!?]|\.(?=\w))*\.", meaning) or len(meaning.split()) > 25
    ]

    assert faulty == []


def test_each_term_leads_to_a_heading_that_is_there() -> None:
    dead = []
    for term, _, links in ROWS:
        targets = re.findall(r"\[[^]]+\]\(([^)#]+)#?([^)]*)\)", links)
        dead += [term] * (not targets)
        for page, place in targets:
            headings = re.findall(r"^#+ (.+)$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
            # The names that GitHub and Sphinx give to headings.
            places = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
            dead += [f"{term}: {page}#{place}"] * (place != "" and place not in places)

    assert dead == []


def test_each_term_is_used_on_another_page() -> None:
    pages = [ROOT / "README.md", *(page for page in DOCS.rglob("*.md") if page != PAGE)]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)

    assert [term for term in TERMS if not re.search(rf"\b{term}(?:s|es)?\b", text, re.IGNORECASE)] == []
