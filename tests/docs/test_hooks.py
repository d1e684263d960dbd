"""The table of what each hook is given has what the records have."""

from __future__ import annotations

import dataclasses
import re

from noetic_nb.memory import MemoryHooks, params
from tests.docs.site_modules import ROOT

# How `origin` finds out; rules ask that.
INTERNAL = {"provenance"}


def test_every_hook_stands_with_what_its_record_has() -> None:
    page = (ROOT / "docs" / "behaviour" / "memory.md").read_text(encoding="utf-8")
    table = re.search(r"\| Hook \| `p` has \|\n\|---\|---\|\n((?:\|.*\n)+)", page)
    assert table is not None
    said = {name: re.findall(r"`(\w+)`", fields) for name, fields in re.findall(r"\| `(\w+)` \| (.*) \|", table[1])}

    records = {
        field.name: getattr(params, found[1])
        for field in dataclasses.fields(MemoryHooks)
        if (found := re.match(r"Hook\[params\.(\w+)\]", str(field.type)))
    }
    assert said == {
        name: [
            field
            for field in getattr(record, "_fields", None) or [one.name for one in dataclasses.fields(record)]
            if field not in INTERNAL
        ]
        for name, record in records.items()
    }
