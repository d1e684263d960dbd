"""Guidance with placeholders: ``{tool.name}``, ``{tool.args.path}``. Only data is inserted, with limited length."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from noetic_nb._core.names import nearest
from noetic_nb.items import thaw
from noetic_nb.items._json_text import compact_json
from noetic_nb.memory.params import AfterModelCallParams, BeforeToolCallParams
from noetic_nb.steering._predicates.bindings import values_of
from noetic_nb.steering._predicates.cel_names import VARIABLES, does_not_compile

# The model reads guidance at every refusal, and the ledger keeps it: about 2 000 tokens are a page.
MAX_GUIDANCE: Final = 8_000
# Inserted values come from a model: long enough to recognise, too short to persuade the reader.
MAX_VALUE: Final = 200

_PLACE: Final = re.compile(r"\{([a-z]+(?:\.[A-Za-z0-9_]+)+)\}")


def capped(text: str) -> str:
    """Return a guidance cut to the usable length."""
    if len(text) <= MAX_GUIDANCE:
        return text
    return f"{text[:MAX_GUIDANCE]}… ({len(text) - MAX_GUIDANCE} characters left out)"


class Guidance:
    """A template, checked when the rule is made."""

    __slots__ = ("_text", "needs")

    def __init__(self, rule_id: str, text: str) -> None:
        self._text = text
        needs: set[str] = set()
        for match in _PLACE.finditer(text):
            root, name = match.group(1).split(".")[:2]
            fields = VARIABLES.get(root, ()) if root != "history" else ()
            if name not in fields:
                known = [f"{variable}.{field}" for variable, names in VARIABLES.items() for field in names]
                near = nearest(f"{root}.{name}", [place for place in known if not place.startswith("history")])
                line = text[: match.start()].count("\n") + 1
                hint = f"Did you mean {near!r}?" if near else "Use {tool.name}, {tool.args.NAME} or {response.text}."
                what = f"its guidance names {match.group(1)!r}, which is nothing"
                raise does_not_compile(rule_id, what, line, hint, field="guidance")
            needs.add(f"{root}.{name}")
        self.needs = frozenset(needs)  # the names that it inserts

    def fill(self, params: BeforeToolCallParams | AfterModelCallParams) -> str:
        """Return the text with its placeholders filled in."""
        # Not cut: the author of the rule wrote it, and nothing is inserted.
        if not self.needs:
            return self._text
        values = values_of(params, self.needs)
        return capped(_PLACE.sub(lambda match: _shown(values, match.group(1).split(".")), self._text))


def _shown(values: Mapping[str, Any], path: Sequence[str]) -> str:
    value: Any = values
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    text = value if isinstance(value, str) else compact_json(thaw(value))
    text = " ".join(text.split())  # one line each, so that a model's text cannot look like a line of its own
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"
