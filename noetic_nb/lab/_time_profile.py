"""A table of where the time of recorded turns went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetic_nb.redact import Redaction
from noetic_nb.runs._run_source import run_of
from noetic_nb.runs._timeline.run_spans import has_clock
from noetic_nb.runs._timeline.turn_parts import PARTS, parts_of_turns

if TYPE_CHECKING:
    import pandas

_COLUMNS: Final = {
    "run_id": "object", "thread_id": "object", "turn": "int64", "part": "object", "name": "object", "ms": "float64",
    "share": "float64", "count": "int64",
}  # fmt: skip


def profile(run: Any) -> pandas.DataFrame:
    """Split the time of each turn of a run into models, tools, hooks, rules, planning, storage and library overhead.

    Each moment belongs to one part. Of simultaneous activities a model call comes first, then waiting for a person, then
    hooks and planning, then tools; equal ones share. So a hook's time excludes the model calls it makes, and the time of a
    tool that runs another agent excludes that agent's calls. See docs/behaviour/lab.md, "Where the time goes".

    Parameters
    ----------
    run : Run or object with a ``run``
        Recorded, loaded, imported or still growing; unfinished turns are left out.

    Returns
    -------
    pandas.DataFrame
        A row per turn, part and name: ``run_id, thread_id, turn, part`` (one of ``model``, ``tool``, ``person``,
        ``hook``, ``rule``, ``planning``, ``storage``, ``own``, ``unsplit``), ``name`` (of the model, tool, layer or
        rule; else empty), ``ms``, ``share`` (of the turn, 0 to 1) and ``count``. The ``ms`` of a turn add up to its
        duration. Unrecorded times are NaN, never 0; as long as one is missing, the remainder is ``unsplit`` and ``own``
        is NaN. Rules without their own time are included in the time of their layer.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``.

    Examples
    --------
    >>> from noetic_nb import AgentConfig, AgentHarness, ScriptedModel, react, record, run_sync
    >>> harness = AgentHarness(AgentConfig(name="desk", step=react(model="m")), model=ScriptedModel(["Hello."]))
    >>> run = record(harness)
    >>> reply = run_sync(harness.execute("Hi"))
    >>> table = profile(run)
    >>> table["part"].tolist()
    ['model', 'planning', 'storage', 'own']
    >>> bool(abs(table["ms"].sum() - run.turns[0].duration_ms) < 1e-6), bool(table["ms"].isna().any())
    (True, False)
    """
    import pandas

    source: Any = run_of(run)
    run_id, rule = getattr(source, "run_id", None), Redaction()
    rows: list[tuple[Any, ...]] = []
    for turn in parts_of_turns(source, is_timed=has_clock(source)):
        for part, name in sorted(turn.ms, key=lambda key: PARTS.index(key[0])):
            ms = turn.ms[part, name]
            share = ms / turn.duration_ms if turn.duration_ms else float("nan")
            rows.append((run_id, turn.thread_id, turn.turn, part, name, ms, share, turn.counts.get((part, name), 0)))
    return pandas.DataFrame(
        {
            name: pandas.Series([rule.data(row[at]) if dtype == "object" else row[at] for row in rows], dtype=dtype)
            for at, (name, dtype) in enumerate(_COLUMNS.items())
        }
    )
