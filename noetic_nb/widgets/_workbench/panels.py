"""The panels of a workbench in one table: the name, view and inputs of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._statistics.labels import runs_in
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run
from noetic_nb.runs._events.selected import was_called
from noetic_nb.runs._recording.recorder import record, recorded
from noetic_nb.runs._regulation.recorded_regulator import checked_regulator
from noetic_nb.runs._run_source import RunLike, run_of
from noetic_nb.runtime._harness import AgentHarness
from noetic_nb.steering import RuleBook
from noetic_nb.steering._layer import rulebook_of
from noetic_nb.widgets._allocation.allocation import TokenAllocation
from noetic_nb.widgets._ledger.ledger import Ledger
from noetic_nb.widgets._memory.memory_view import MemoryView
from noetic_nb.widgets._rules.rule_editor import RuleEditor
from noetic_nb.widgets._timeline.timeline import RunTimeline
from noetic_nb.widgets._transcript.transcript import Transcript
from noetic_nb.widgets._trends.trends import RegulatorTrends
from noetic_nb.widgets.base._run_view import RunView

# The page width is divided into twelfths, so that halves, thirds and quarters are whole numbers.
COLUMNS: Final = 12
# Pixels: a lower panel shows no row, a higher one does not fit a screen.
HEIGHTS: Final = (160, 1_600)


class Subject(NamedTuple):
    """The subject of a workbench."""

    run: RunLike
    harness: Any = None
    rules: RuleBook | None = None
    regulator: Regulator | None = None
    bank: tuple[Run, ...] = ()


class Panel(NamedTuple):
    """One panel: its title, its view, its size in columns and pixels, and whether it is open by default."""

    title: str
    view: type[RunView]
    make: Callable[..., RunView]
    """``make(subject, **arguments)``, with the common arguments of all views."""
    size: tuple[int, int]
    is_open: bool = False
    lacks: Callable[[Subject], str] = lambda _subject: ""
    """The reason why it cannot be opened, or empty."""
    is_of_thread: bool = True
    """Whether it shows only the chosen thread. Rules apply to all threads."""
    has_any: Callable[[Any], bool] = lambda run: bool(run.events)
    """Tells whether the panel has anything to show for a recording."""


def _needs_rules(subject: Subject) -> str:
    return "" if subject.rules is not None else "No rule book is known here: pass rules=."


def _labelled(bank: Sequence[Run]) -> list[Run] | None:
    # A bank of attacks has no known outcomes: it is only used for rules.
    return [run for run in bank if run.meta.get("outcome") is not None] or None


PANELS: Final[Mapping[str, Panel]] = {
    "ledger": Panel("Ledger", Ledger, lambda of, **more: Ledger(of.run, **more), (12, 320)),
    "transcript": Panel("Transcript", Transcript, lambda of, **more: Transcript(of.run, **more), (12, 460)),
    "allocation": Panel(
        "Context",
        TokenAllocation,
        lambda of, **more: TokenAllocation(of.run, **more),
        (12, 460),
        True,
        has_any=was_called,
    ),
    "trends": Panel(
        "Quality and cost",
        RegulatorTrends,
        lambda of, **more: RegulatorTrends(of.run, regulator=of.regulator, bank=_labelled(of.bank), **more),
        (12, 440),
    ),
    "timeline": Panel("Events", RunTimeline, lambda of, **more: RunTimeline(of.run, **more), (12, 520), True),
    "memory": Panel(
        "Memory",
        MemoryView,
        lambda of, **more: MemoryView(of.run, harness=of.harness, **more),
        (12, 460),
    ),
    "rules": Panel(
        "Rules",
        RuleEditor,
        lambda of, **more: RuleEditor(of.rules, run=of.run, runs=of.bank, **more),
        (12, 520),
        True,
        lacks=_needs_rules,
        is_of_thread=False,
    ),
}
"""Every panel, in page order."""


def checked_names(names: Any) -> list[str]:
    """Return the distinct panel names in the order of the table.

    Raises
    ------
    NoeticConfigError
        ``UNKNOWN_PANEL``.

    Examples
    --------
    >>> checked_names(["transcript", "ledger", "ledger"])
    ['ledger', 'transcript']
    """
    given = list(names) if isinstance(names, Iterable) and not isinstance(names, str) else [names]
    wrong = [name for name in given if name not in list(PANELS)]  # a list would not be hashed
    if wrong:
        hint = f"Panels are {', '.join(PANELS)}."
        raise NoeticConfigError("UNKNOWN_PANEL", "There is no such panel.", given=wrong, hint=hint)
    return [name for name in PANELS if name in given]


def subject_of(source: Any, rules: Any, regulator: Any, bank: Any = None) -> Subject:
    """Return the subject of a workbench; a harness is recorded, and its own rules are the default.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``; ``NOT_A_RULE_BOOK``; ``INVALID_REGULATOR``; ``INVALID_RUN`` and ``NO_RUNS`` for the bank.
    """
    harness = source if isinstance(source, AgentHarness) else None
    run = run_of(source) if harness is None else recorded(harness) or record(harness)
    if rules is not None and not isinstance(rules, RuleBook):
        hint = "Pass the agent's rule book."
        raise NoeticConfigError("NOT_A_RULE_BOOK", "Rules must be a RuleBook.", given=rules, hint=hint)
    if rules is None and harness is not None:
        books = [rulebook_of(layer) for layer in harness.config.memory]
        rules = next((book for book in books if book is not None), None)
    if regulator is not None:
        checked_regulator(regulator)
    return Subject(run, harness, rules, regulator, () if bank is None else tuple(runs_in(bank)))


def names_to_open(subject: Subject, given: Sequence[str] | None) -> list[str]:
    """Return the panels to open: the named ones, or all available ones that are open by default.

    For a finished recording, panels with nothing to show are left out.

    Raises
    ------
    NoeticConfigError
        ``UNKNOWN_PANEL``; ``PANEL_NOT_AVAILABLE``.
    """
    if given is None:
        found = {name: panel for name, panel in PANELS.items() if panel.is_open and not panel.lacks(subject)}
        if not getattr(subject.run, "is_recording", False) and len(subject.run.events):
            found = {name: panel for name, panel in found.items() if panel.has_any(subject.run)}
        return list(found)
    names = checked_names(given)
    for name in names:
        why = PANELS[name].lacks(subject)
        if why:
            raise NoeticConfigError("PANEL_NOT_AVAILABLE", why, given=name, hint="Workbench(run, rules=book)")
    return names


def checked_size(given: Any) -> list[int]:
    """Return a valid size: columns of 12, and pixels.

    Raises
    ------
    NoeticConfigError
        ``INVALID_SIZE``.
    """
    try:
        columns, height = (int(number) for number in given)
    except (TypeError, ValueError, OverflowError) as exc:
        hint = "For example: (6, 400)."
        raise NoeticConfigError("INVALID_SIZE", "A size is (columns, pixels).", given=given, hint=hint) from exc
    least, most = HEIGHTS
    return [max(3, min(columns, COLUMNS)), max(least, min(height, most))]
