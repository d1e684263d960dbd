"""What the site is made of: rooms, errors, links and the example on its first page."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from typing import Any, get_args

import noetic_nb
from noetic_nb.errors import ErrorKind
from tests.docs.site_modules import ROOT, site_module

links, reference = site_module("links"), site_module("reference")
# Nothing that a user calls by name.
INTERNAL = {"cards", "redact", "compat", "cli"}


def test_every_public_room_has_a_page() -> None:
    rooms = {
        f"noetic_nb.{found.name}"
        for found in pkgutil.iter_modules(noetic_nb.__path__)
        if found.ispkg and hasattr(importlib.import_module(f"noetic_nb.{found.name}"), "__all__")
    }
    assert rooms - {f"noetic_nb.{name}" for name in INTERNAL} - set(reference.ROOMS) == set()


def test_every_public_name_is_explained_once() -> None:
    pages = {room: reference.room_page(room) for room in reference.ROOMS}
    explained = re.findall(r"^\.\. auto\w+:: (\S+)$", "\n".join(pages.values()), flags=re.MULTILINE)

    assert len(explained) == len(set(explained))
    for room, page in pages.items():
        names: Any = importlib.import_module(room)
        missing = [name for name in names.__all__ if f"{name}\n" not in page and f"`{name} <" not in page]
        # Modules have pages of their own.
        assert [
            name for name in missing if f"{room}.{name}" not in reference.ROOMS and not _is_module(names, name)
        ] == []


def test_what_a_class_has_of_a_base_that_is_on_no_page_is_on_its_own() -> None:
    pages = "\n".join(map(reference.room_page, reference.ROOMS))
    whole = re.findall(r"^\.\. autoclass:: (\S+)\n   :members:\n   :inherited-members:$", pages, flags=re.MULTILINE)

    assert {"noetic_nb.runs.Run", "noetic_nb.steering.RuleBook", "noetic_nb.regulator.Regulator"} <= set(whole)
    assert not {"noetic_nb.items.Item", "noetic_nb.errors.ItemValidationError", "noetic_nb.widgets.Ledger"} & set(whole)


def _is_module(room: Any, name: str) -> bool:
    return type(getattr(room, name)).__name__ == "module"


def test_every_kind_and_every_code_of_error_is_on_its_page() -> None:
    page = reference.error_page(ROOT / "noetic_nb")

    assert [kind for kind in get_args(ErrorKind) if f"| `{kind}` |" not in page] == []
    codes = set(
        re.findall(
            r'NoeticConfigError\(\s*"([A-Z_]+)"',
            "".join(path.read_text(encoding="utf-8") for path in (ROOT / "noetic_nb").rglob("*.py")),
        )
    )
    assert [code for code in sorted(codes) if f"| `{code}` |" not in page] == []


def test_links_that_lead_nowhere_are_found() -> None:
    assert doctest.testmod(links).failed == 0
    assert doctest.testmod(links).attempted > 0
