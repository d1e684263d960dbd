"""Many runs as a table: the live view of a collection.

The collection itself searches, filters and sorts, in the kernel. A page gets 50 rows at a time; a run is read when it is
opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape as quoted
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.interop._collection.run_collection import RunCollection, open_runs
from noetic_nb.markup import dollars, escape, heading
from noetic_nb.runs import Run
from noetic_nb.runs._labelled import visible_labels
from noetic_nb.runs._plain_text import plain, sendable
from noetic_nb.widgets._transcript.call_outcome import names_for
from noetic_nb.widgets._workbench.workbench import Workbench
from noetic_nb.widgets.base._feed import Reading
from noetic_nb.widgets.base._run_view import RunView
from noetic_nb.widgets.base._table import keyed, table


class RunLabels:
    """The labels that one rater gives to runs, and the visible labels of others."""

    def __init__(self, collection: RunCollection, by: str) -> None:
        self.collection, self.by = collection, by
        self.names, self.data = names_for(collection[0] if len(collection) else None, by, "run")

    def text(self, at: int) -> str:
        shown = [each for each in visible_labels(self.collection[at], self.by) if each.target == (None,) * 4]
        return ", ".join(
            f"{each.name}: {each.value}" + ("" if each.by == self.by else f" ({plain(each.by)})") for each in shown
        )

    def give(self, at: int, name: int, value: int | None) -> None:
        """Label a run with a value, given as an index in the codebook; None removes the label."""
        names = list(self.names)
        if not 0 <= name < len(names) or not (value is None or 0 <= value < len(self.names[names[name]])):
            raise NoeticConfigError(
                "UNKNOWN_LABEL", "The codebook has no such value.", given=(name, value), hint="Load the page again."
            )
        named = names[name]
        self.collection[at].label(named, None if value is None else self.names[named][value], by=self.by)


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
"""The fact that a column is sorted by, its name, and its CSS class."""
OUTCOMES: Final = {True: "good", False: "failed", None: ""}
EMPTY: Final = "There is no run in this collection."
WIDTH, HEIGHT = 72, 16
"""The size of a small picture, in CSS pixels."""


def line_of(points: Sequence[float]) -> str:
    """Return the line of a small picture as an SVG path, scaled from zero to the largest value.

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
    """Return a run for a page; `at` is its index in the collection."""
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
    context, said = row["context"], ""
    if context:
        most = max(context)
        said = f"context of {len(context)} call{'s' * (len(context) > 1)}, at most {most:,.0f} token{'s' * (most != 1)}"
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
    """A collection as pages see it, with the labels of the rater using the page.

    `opens` opens the run at an index of the collection (None closes it); it returns the id of the widget that shows it.
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
            "count": PAGE,
            "empty": EMPTY,
            "names": [] if labels is None else labels.data,
        }
        self._turn_to(0)

    @property
    def has_any(self) -> bool:
        return bool(len(self.collection))

    @property
    def selected_runs(self) -> RunCollection:
        """The selected runs, in the order of the collection."""
        return self.collection._of([key for key, at in self._places.items() if at in self.chosen])

    def _turn_to(self, start: int) -> dict[str, Any]:
        """Change the snapshot to the page that begins with a row, and return its content."""
        start = max(0, min(start, len(self.shown) - 1)) // PAGE * PAGE
        part = self.shown[start : start + PAGE]
        places = [self._places[key] for key in part._keys]
        page: dict[str, Any] = {
            **self._asked,
            "text": sendable(self._asked["text"]),
            "where": sendable(self._asked["where"]),
            "start": start,
            "total": len(self.collection),
            "matched": len(self.shown),
            "selected": len(self.chosen),
            "opened": self.opened,
            "bench": self.bench,
        }
        self.rows = [self._row(row, at) for row, at in zip(part.rows(), places, strict=True)]
        page["rows"] = list(map(row_data, self.rows))
        self.snapshot.update(page)
        return page

    def _row(self, row: Mapping[str, Any], at: int) -> dict[str, Any]:
        shown = wire(row, at, at in self.chosen)
        if self.labels is not None:  # a rater must not see all labels
            shown["cells"][-1] = plain(self.labels.text(at))
        return shown

    def page(self) -> dict[str, Any]:
        return self._turn_to(self.snapshot["start"])

    def _ask(self, asked: dict[str, Any]) -> None:
        """Search, filter and sort; on failure nothing changes."""
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
        """Handle a page change, a selection, or a run to open; returns the page."""
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
        """Describe in one line which runs are shown."""
        now = self.snapshot
        total = f"{now['total']:,} run{'' if now['total'] == 1 else 's'}"
        parts = [total if now["matched"] == now["total"] else f"{now['matched']:,} of {total}"]
        parts += [f"search: {plain(now['text'])}"] if now["text"].strip() else []
        parts += [f"where: {plain(now['where'])}"] if now["where"].strip() else []
        if now["matched"] > PAGE:
            parts.append(f"rows {now['start'] + 1:,} to {now['start'] + len(now['rows']):,}")
        return ", ".join(parts)

    def to_html(self) -> str:
        head = heading("Runs")
        if not self.has_any:
            return f'{head}<p class="nn-empty">{escape(EMPTY)}</p>'
        shown = table("nn-runs", [(name, look) for _, name, look in COLUMNS], map(_cells, self.rows))
        rest = '<p class="nn-note">All of them are in <code>to_frame()</code>.</p>'
        more = rest if self.snapshot["matched"] > PAGE else ""
        return f'{head}<p class="nn-sub">{escape(self.headline())}</p>{shown}{more}'

    def to_text(self) -> str:
        if not self.has_any:
            return f"Runs. {EMPTY}"
        lines = []
        for row in self.rows:
            cells = [f"{name.lower()} {cell}" for (_, name, _), cell in zip(COLUMNS, row["cells"], strict=True) if cell]
            lines.append("  ".join(["", *[" ".join(cell.split()) for cell in (row["cells"][0], *cells[1:])]]))
        return "\n".join([f"Runs. {self.headline()}", *lines])


def row_data(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run as a table row for a page, with a checkbox."""
    name, (first, *others) = escape(row["name"]), zip(_cells(row), COLUMNS, strict=True)
    looks = [(cell, f' class="{look}"' if look else "") for cell, (_, _, look) in others]
    rest = "".join([f"<td{look}>{cell}</td>" for cell, look in looks])
    box = f'<td><input type="checkbox" tabindex="-1" aria-label="Select {name}"></td>'
    html = f'<tr title="{name}">{box}<th class="{first[1][2]}" scope="row">{first[0]}</th>{rest}</tr>'
    return keyed(row["at"], html, at=row["at"], chosen=row["chosen"])


def _cells(row: Mapping[str, Any]) -> list[str]:
    html = []
    for (_, name, _), text in zip(COLUMNS, row["cells"], strict=True):
        line, said = row["lines"].get(name, ("", ""))
        picture = ""
        if line:
            picture = (
                f'<svg class="nn-spark" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
                f'aria-label="{quoted(said)}"><path d="{line}" fill="none" stroke="currentColor"></path></svg>'
            )
        inside = f'<span data-outcome="{escape(text)}">{escape(text)}</span>' if name == "Outcome" else escape(text)
        html.append(f"{picture}{inside}")
    return html


class Runs(RunView):
    """Show the runs of a collection: search and filter them, open one in a workbench, and select some.

    Parameters
    ----------
    collection : RunCollection
        The runs; other sources for `noetic_nb.open_runs` are converted.
    by : str, optional
        A rater who labels runs by keyboard with the values in the codebook of the first run: a digit gives a value, 0
        removes it. Labels of other raters are shown once both are done.

    Attributes
    ----------
    collection : RunCollection
        All runs.
    shown : RunCollection
        The runs that match the page's search and filter, in its order.
    selected : RunCollection
        The runs with selected rows, in the order of `collection`.
    bench : Workbench or None
        The workbench below the table.

    Raises
    ------
    NoeticConfigError
        As `noetic_nb.open_runs`; ``NO_CODEBOOK`` if a rater is given but there is no codebook.
    NoeticError
        ``invalid_run_file`` if files have changed since the collection was opened.

    References
    ----------
    .. [1] docs/behaviour/views.md, "Runs".

    Examples
    --------
    >>> with Runs([Run.from_messages([{"role": "user", "content": "Refund me."}], outcome=False)]) as view:
    ...     view
    Runs. 1 run
      Refund me.  turns 1  tool calls 0  tokens 0  cost $0.0000  outcome failed
    """

    scripts = ("runs/runs",)
    bench: Workbench | None = None

    def __init__(self, collection: Any, *, by: str | None = None) -> None:
        self.collection: RunCollection = open_runs(collection)
        labels = None if by is None else RunLabels(self.collection, by)
        self._table = RunsReading(self.collection, self._open_at, labels)
        # Nothing is followed: an empty run stands for the runs of the collection.
        super().__init__(Run(), self._table)

    @property
    def shown(self) -> RunCollection:
        """The runs in the table, on all its pages."""
        return self._table.shown

    @property
    def selected(self) -> RunCollection:
        """The runs that are selected."""
        return self._table.selected_runs

    def open_run(self, at: int) -> Workbench:
        """Show a workbench below the table; the previous one is closed.

        Parameters
        ----------
        at : int
            The index of the run in `collection`.

        Raises
        ------
        NoeticConfigError
            ``INVALID_OPTION`` if there is no such index.
        NoeticError
            If the run cannot be read.
        """
        with self.up_to_date():
            self._open_at(at)
            self.send({"type": "page", "page": self._table.page()})
        assert self.bench is not None
        return self.bench

    def _open_at(self, at: int | None) -> None:
        if at is not None and (type(at) is not int or not 0 <= at < len(self.collection)):
            hint = f"Name a place from 0 to {len(self.collection) - 1}."
            raise NoeticConfigError("INVALID_OPTION", "The collection has no such run.", given=at, hint=hint)
        bench = None if at is None else Workbench(self.collection[at])
        before, self.bench = self.bench, bench
        if before is not None:
            before.close()
        self._table.opened, self._table.bench = at, "" if bench is None else str(bench.model_id)
        self.refresh_static()

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = super()._answer(request)
        self.refresh_static()
        return answer

    def to_frame(self) -> Any:
        """Return the facts of the shown runs, on all pages of the table.

        Returns
        -------
        pandas.DataFrame
            As `RunCollection.to_frame`.
        """
        with self.up_to_date():
            return self.shown.to_frame()

    def _release(self) -> bool:
        if self.bench is not None:
            self.bench.close()
        return super()._release()
