"""The chain of an origin: every author, and the trust of the least trusted one."""

from __future__ import annotations

from noetic_nb.items._origins import MODEL, Origin, chained

PAGE, KEPT, USER = Origin("tool", "read_page"), Origin("layer", "notes"), Origin("user")


def test_an_origin_of_one_author_is_its_own_chain() -> None:
    assert PAGE.chain == (PAGE,)
    assert chained([PAGE]) == PAGE


def test_a_chain_is_trusted_as_its_least_trusted_link() -> None:
    found = chained([PAGE, KEPT])

    assert (found.kind, found.name, found.chain) == ("tool", "read_page", (PAGE, KEPT))
    assert chained([USER, KEPT]).text == "layer:notes"
    assert chained([found, MODEL]).chain == (PAGE, KEPT, MODEL)
    assert chained([found, MODEL]).kind == "model"
