"""Read a page of a collection: rows as texts and small pictures, and the search, filter and order that pages ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape as quoted
from typing import Any, Final

from noetic_nb.events import RunEvent
from noetic_nb.interop._collection.run_collection import RunCollection
from noetic_nb.markup import dollars, escape, heading
from noetic_nb.runs._plain_text import plain, sendable
from noetic_nb.widgets._runs.run_labels import RunLabels
from noetic_nb.widgets.base._feed import Place, Reading

PAGE: Final = 50
COLUMNS: Final = (
    ("query", "Run", "nn-text"),
    ("task", "Task", "nn-text"),
    ("model", "Model", "nn-text"),
    ("turns", "Turns", ""),
    ("tool_calls", "Tool calls", ""),
    ("tokens", "Tokens", ""),
    ("", "Context", "nn-picture"),
    ("cost", "Cost", "nn-picture"),
    ("outcome", "Outcome", "nn-outcome"),
    ("", "Labels", "nn-text"),
)
"""The fact that a column is sorted by, its name, and the class that it is laid out by."""
OUTCOMES: Final = {True: "good", False: "failed", None: ""}
EMPTY: Final = "There is no run in this collection."
WIDTH, HEIGHT = 72, 16
"""Of a small picture, in pixels of a page."""


def line_of(points: Sequence[float]) -> str:
    """Return the line of a small picture as the path of an SVG, from zero to the largest value.

    Examples
    --------
    >>> line_of([0, 5, 10])
    'M0 15L36 8L72 1'
    """
    top, last = max(points, default=0), max(1, len(points) - 1)
    if top <= 0:
        return ""
    values = points if len(points) > 1 else [*points, *points]
    places = [
        f"{WIDTH * at / last:.3g} {HEIGHT - 1 - (HEIGHT - 2) * value / top:.3g}" for at, value in enumerate(values)
    ]
    return "M" + "L".join(places)


def wire(row: Mapping[str, Any], at: int, chosen: bool) -> dict[str, Any]:
    """Return a run as a page gets it; `at` is its place in the collection."""
    outcome = row["outcome"]
    named = [f"{name}: {'raters differ' if value is None else value}" for name, value in row["labels"].items()]
    texts = {
        "Run": row["query"] or "(no message)",
        "Task": "" if row["task"] is None else row["task"],
        "Model": row["model"] or "",
        "Turns": f"{row['turns']:,}",
        "Tool calls": f"{row['tool_calls']:,}" + (f", {row['failed_calls']:,} failed" if row["failed_calls"] else ""),
        "Tokens": "" if row["tokens"] is None else f"{row['tokens']:,}",
        "Context": "",
        "Cost": "" if row["cost"] is None else dollars(row["cost"]),
        "Outcome": OUTCOMES.get(outcome, outcome) if isinstance(outcome, bool | None) else outcome,
        "Labels": ", ".join(named),
    }
    context = row["context"]
    said = f"context of {len(context)} calls, at most {max(context):,.0f} tokens" if context else ""
    return {
        "at": at,
        "chosen": chosen,
        "name": plain(row["run_id"]),
        "cells": [plain(texts[name]) for _, name, _ in COLUMNS],
        "lines": {
            "Context": [line_of(context), said],
            "Cost": [line_of(row["costs"]), "cost so far" if row["costs"] else ""],
        },
    }


class RunsReading(Reading):
    """A collection as pages see it.

    Parameters
    ----------
    collection : RunCollection
        All runs.
    opens : callable
        Opens the run at a place of the collection, None for none; returns the id of the widget that shows it.
    labels : RunLabels, optional
        The labels of the rater at the page.
    """

    def __init__(
        self, collection: RunCollection, opens: Callable[[int | None], object], labels: RunLabels | None = None
    ) -> None:
        self.collection, self.shown = collection, collection
        self.labels = labels
        self.chosen: set[int] = set()
        self.opened: int | None = None
        self.bench = ""
        self._opens = opens
        self._places = {key: at for at, key in enumerate(collection._keys)}
        self._asked: dict[str, Any] = {"text": "", "where": "", "sort": "", "descending": False}
        self.snapshot: dict[str, Any] = {
            "columns": [list(column) for column in COLUMNS],
            "size": [WIDTH, HEIGHT],
            "count": PAGE,
            "empty": EMPTY,
            "names": [] if labels is None else labels.data,
        }
        self._turn_to(0)

    @property
    def has_any(self) -> bool:
        """Whether there is a run."""
        return bool(len(self.collection))

    @property
    def selected_runs(self) -> RunCollection:
        """The runs that are selected, in the order of the collection."""
        return self.collection._of([key for key, at in self._places.items() if at in self.chosen])

    def take(self, event: RunEvent, place: Place) -> None:
        """Take an event: a collection does not grow."""

    def _turn_to(self, start: int) -> dict[str, Any]:
        """Bring the snapshot to the page that begins with a row; returns what is in it."""
        start = max(0, min(start, len(self.shown) - 1)) // PAGE * PAGE
        part = self.shown[start : start + PAGE]
        places = [self._places[key] for key in part._keys]
        page = {
            **self._asked,
            "text": sendable(self._asked["text"]),
            "where": sendable(self._asked["where"]),
            "start": start,
            "total": len(self.collection),
            "matched": len(self.shown),
            "selected": len(self.chosen),
            "opened": self.opened,
            "bench": self.bench,
            "rows": [self._row(row, at) for row, at in zip(part.rows(), places, strict=True)],
        }
        self.snapshot.update(page)
        return page

    def _row(self, row: Mapping[str, Any], at: int) -> dict[str, Any]:
        shown = wire(row, at, at in self.chosen)
        if self.labels is not None:  # a rater must not see all labels
            shown["cells"][-1] = plain(self.labels.text(at))
        return shown

    def page(self) -> dict[str, Any]:
        """Return the page that is shown, as it is now."""
        return self._turn_to(self.snapshot["start"])

    def _ask(self, asked: dict[str, Any]) -> None:
        """Search, filter and sort; where that fails, all stays as it was."""
        if asked == self._asked:
            return
        found = self.collection
        if asked["text"].strip():
            found = found.search(asked["text"])
        if asked["where"].strip():
            found = found.where(asked["where"])
        if asked["sort"]:
            found = found.sort(asked["sort"], descending=asked["descending"])
        self.shown, self._asked = found, asked

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer a question for a page of the table, a selection, and a run to open: with the page."""
        match request:
            case {
                "what": "page",
                "text": str(text),
                "where": str(where),
                "sort": str(sort),
                "descending": bool(descending),
                "start": int(start),
            }:
                self._ask({"text": text, "where": where, "sort": sort, "descending": descending})
                return self._turn_to(start)
            case {"do": "select", "rows": list(rows), "on": bool(on)}:
                known = {at for at in rows if type(at) is int and 0 <= at < len(self.collection)}
                self.chosen = self.chosen | known if on else self.chosen - known
                return self.page()
            case {"do": "select", "rows": "all", "on": bool(on)}:
                self.chosen = self.chosen | {self._places[key] for key in self.shown._keys} if on else set()
                return self.page()
            case {"do": "label", "at": int(at), "name": int(name), "value": int() | None as value} if (
                self.labels is not None and 0 <= at < len(self.collection)
            ):
                self.labels.give(at, name, value)
                return self.page()
            case {"do": "open", "at": int() | None as at}:
                self._opens(at)
                return self.page()
        return super().answer(request)

    def headline(self) -> str:
        """Return in one line which runs are shown."""
        now = self.snapshot
        total = f"{now['total']:,} run{'' if now['total'] == 1 else 's'}"
        parts = [total if now["matched"] == now["total"] else f"{now['matched']:,} of {total}"]
        parts += [f"search: {plain(now['text'])}"] if now["text"].strip() else []
        parts += [f"where: {plain(now['where'])}"] if now["where"].strip() else []
        if now["matched"] > PAGE:
            parts.append(f"rows {now['start'] + 1:,} to {now['start'] + len(now['rows']):,}")
        return ", ".join(parts)

    def to_html(self) -> str:
        """Return the page of the table that is shown as HTML without scripts."""
        head = heading("Runs")
        if not self.has_any:
            return f'{head}<p class="nn-empty">{escape(EMPTY)}</p>'
        names = "".join([f'<th scope="col" class="{look}">{name}</th>' for _, name, look in COLUMNS])
        body = "".join([_row(row) for row in self.snapshot["rows"]])
        rest = '<p class="nn-note">All of them are in <code>to_frame()</code>.</p>'
        return (
            f'{head}<p class="nn-sub">{escape(self.headline())}</p><div class="nn-scroll"><table class="nn-table nn-runs">'
            f"<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>"
            f"{rest if self.snapshot['matched'] > PAGE else ''}"
        )

    def to_text(self) -> str:
        """Return the page of the table that is shown as plain text."""
        if not self.has_any:
            return f"Runs. {EMPTY}"
        lines = []
        for row in self.snapshot["rows"]:
            cells = [f"{name.lower()} {cell}" for (_, name, _), cell in zip(COLUMNS, row["cells"], strict=True) if cell]
            lines.append(f"  {row['cells'][0]}  {'  '.join(cells[1:])}")
        return "\n".join([f"Runs. {self.headline()}", *lines])


def _row(row: Mapping[str, Any]) -> str:
    html = []
    for (_, name, look), text in zip(COLUMNS, row["cells"], strict=True):
        line, said = row["lines"].get(name, ("", ""))
        picture = ""
        if line:
            picture = (
                f'<svg class="nn-spark" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
                f'aria-label="{quoted(said)}"><path d="{line}" fill="none" stroke="currentColor"></path></svg>'
            )
        inside = f'<span data-outcome="{escape(text)}">{escape(text)}</span>' if name == "Outcome" else escape(text)
        tag, scope = ("th", ' scope="row"') if name == "Run" else ("td", "")
        html.append(f'<{tag}{scope} class="{look}">{picture}{inside}</{tag}>')
    return f"<tr>{''.join(html)}</tr>"
