"""The live view of token budgets: how each model call spent its tokens.

The upper chart shows the context over time for all calls; below it is one call, sent above planned. The pale part of a
layer was yielded to history. Loaded and live runs look the same: both are runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import traitlets

from noetic_nb.runs import Run
from noetic_nb.runs._events.selected import CallName
from noetic_nb.runs._run_source import run_of
from noetic_nb.runtime._planning.turn_plan import TurnPlan
from noetic_nb.widgets._allocation.allocation_reading import CALLS_HOSTED, CALLS_KEPT, AllocationReading
from noetic_nb.widgets.base._host import enclosing_host
from noetic_nb.widgets.base._picture import PictureView
from noetic_nb.widgets.base._selection import Moment, Selection

if TYPE_CHECKING:
    import pandas


class TokenAllocation(PictureView):
    """Show how each model call spent its tokens, and the effect of other budgets.

    Parameters
    ----------
    run : Run or object with a ``run``
        A growing run, or one that was loaded or replayed.
    thread_id : str, optional
        Show only this thread.
    turn : int, optional
        Show only this turn, counted from 1 in each thread.
    until : int, optional
        Show the turns up to this one, inclusive.
    selection : Selection, optional
        The selection shared with other views.

    Attributes
    ----------
    follow : bool
        Whether to show the newest call.
    position : int
        The index of the shown call, if it is not the newest.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``; ``INVALID_TURN`` if `turn` or `until` is not a whole number of at least 0; ``INVALID_THREAD``;
        ``NOT_A_SELECTION``.

    Examples
    --------
    >>> from noetic_nb.runs import Run
    >>> with TokenAllocation(Run()) as view:
    ...     view
    Token allocation. No model call yet. Each call appears here as soon as the agent sends one.
    """

    table = "allocations"
    follow = traitlets.Bool(True).tag(sync=True)
    position = traitlets.Int(-1).tag(sync=True)
    scripts = ("base/scene", "base/rows", "allocation/what_if", "allocation/allocation")

    def __init__(
        self,
        run: Any,
        *,
        thread_id: str | None = None,
        turn: int | None = None,
        until: int | None = None,
        selection: Selection | None = None,
    ) -> None:
        moment = Moment(thread_id, turn, until)
        self._allocation = AllocationReading(
            moment, calls_kept=CALLS_KEPT if enclosing_host() is None else CALLS_HOSTED, run=run_of(run)
        )
        super().__init__(run, self._allocation, moment=moment, selection=selection)
        self.observe(self._move, ["follow", "position"])

    def to_frame(self) -> pandas.DataFrame:
        """Return the content of the view as a table.

        Returns
        -------
        pandas.DataFrame
            The rows of the table ``allocations``; without layers or plans, as in an imported run, ``call`` (numbered as in
            `what_if`), ``part``, ``tokens`` and ``estimated``. Estimated parts of a call add up to its billed tokens.

        Examples
        --------
        >>> from noetic_nb.lab import datasets
        >>> with TokenAllocation(datasets.airline_run(26)) as view:
        ...     frame = view.to_frame()
        >>> list(frame), sorted(frame["part"].unique())
        (['call', 'part', 'tokens', 'estimated'], ['assistant', 'system', 'tool results', 'user'])
        """
        with self.up_to_date():
            found: pandas.DataFrame = super().to_frame()
            rows = self._allocation.rows()
            if not found.empty or not (rows or self._allocation.calls.lacks_plans):
                return found
            import pandas

            columns = {"call": "Int64", "part": "object", "tokens": "int64", "estimated": "bool"}
            return pandas.DataFrame(rows, columns=list(columns)).astype(columns)

    def what_if(
        self,
        call: CallName,
        budgets: Mapping[str, Any] | None = None,
        total: float | None = None,
        reserve: float | None = None,
        *,
        thread_id: str | None = None,
    ) -> TurnPlan:
        """Plan a call again with other budgets, as the sliders of the page do.

        Parameters
        ----------
        call : int or ModelCalled
            Its index among the agent's model calls (negative from the end), or its event.
        budgets : mapping, optional
            By layer id: a number, ``(min, max)``, ``{"min": ..., "max": ...}`` or ``"auto"``, in tokens.
        total, reserve : float, optional
            Tokens of the whole request including its answer, and of the answer alone.
        thread_id : str, optional
            Count only the calls of this thread.

        Returns
        -------
        TurnPlan
            The hypothetical request: ``items``, ``budgets``, ``layers``, ``fates``. Layers are not called again: their
            recorded offers are limited to the new budgets.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_CALL``; ``NOT_RECORDED`` if the run lacks inputs of the call's plan;
            ``UNKNOWN_LAYER_REFERENCE``, ``INVALID_BUDGET``, ``INVALID_PROJECTION``, ``INVALID_BUDGET_INPUT``.

        References
        ----------
        .. [1] docs/behaviour/runtime.md, "Planning a call again".

        Examples
        --------
        >>> import asyncio
        >>> import noetic_nb as nn
        >>> config = nn.AgentConfig(name="echo", step=nn.react(model="scripted"))
        >>> harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Hello!"]))
        >>> run = nn.record(harness)
        >>> _ = asyncio.run(harness.execute("Hi"))
        >>> with TokenAllocation(run) as view:
        ...     view.what_if(0, total=1_000, reserve=100).budgets.history_budget
        360.0
        """
        with self.up_to_date():
            found = self._allocation.index.find(call, thread_id=thread_id)
            return found.replan(budgets=budgets, total=total, reserve=reserve)

    def point(self, item: Any, *, thread_id: str | None = None) -> pandas.DataFrame:
        """Select an item of the log: its ribbon is drawn, and the selection is the item and the first call that missed it.

        Parameters
        ----------
        item : int or Loss
            The position of the item in the log, or a fact from `noetic_nb.lab.lost`, which is in the item.
        thread_id : str, optional
            The thread of the item; by default that of the shown call.

        Returns
        -------
        pandas.DataFrame
            ``call``, ``turn``, ``sent`` and ``reason`` of each call that knew the item: ``budget``, ``window``, ``summary``,
            ``compaction``, ``cleared``, or None if it was sent.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_ITEM``.

        Examples
        --------
        >>> import asyncio
        >>> import noetic_nb as nn
        >>> config = nn.AgentConfig(name="desk", step=nn.react(model="scripted"), memory=[nn.history_window(2)])
        >>> harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Noted.", "Sure.", "Which one?"]))
        >>> run = nn.record(harness)
        >>> for text in ("My order is A17-B.", "Thank you.", "What was my order again?"):
        ...     _ = asyncio.run(harness.execute(text, thread_id="t"))
        >>> with TokenAllocation(run) as view:
        ...     view.point(nn.lab.lost(run, -1)[0])[["call", "sent", "reason"]].to_numpy().tolist()
        [[0, True, None], [1, False, 'window'], [2, False, 'window']]
        """
        import pandas

        with self.up_to_date():
            found = self._allocation.states(getattr(item, "position", item), thread_id)
        chosen = next((row for row in found if not row[3]), found[-1])
        self.selection.select(thread_id=chosen[0], turn=chosen[2], call=chosen[1], item=getattr(item, "position", item))
        columns = {"call": "Int64", "turn": "int64", "sent": "bool", "reason": "object"}
        return pandas.DataFrame([row[1:] for row in found], columns=list(columns), dtype=object).astype(columns)

    def what_if_cached(self, **changes: Any) -> pandas.DataFrame:
        """Return the effect of caching on the calls of this view, with a differently arranged prompt.

        Parameters
        ----------
        **changes
            ``order``, ``freeze``, ``last``, ``rules`` and ``price``, as for `noetic_nb.lab.what_if_cached`.

        Returns
        -------
        pandas.DataFrame
            The table of `Run.caching`, for the shown thread and turns.

        Raises
        ------
        NoeticConfigError
            As `noetic_nb.lab.what_if_cached`.

        Examples
        --------
        >>> from noetic_nb.runs import Run
        >>> with TokenAllocation(Run()) as view:
        ...     view.what_if_cached(last="changing").empty
        True
        """
        from noetic_nb.lab._caching_changes import what_if_cached  # most views never need it

        run = self.run if isinstance(self.run, Run) else Run("", events=self.run.events)
        found: pandas.DataFrame = self.moment.rows(what_if_cached(run, **changes))
        return found

    def _selected(self, fields: dict[str, Any]) -> None:
        with self.up_to_date():
            at = self._allocation.at_of(fields)
        # The page that made the selection has already moved, and may have moved again since.
        if self._asked_by is None and at is not None and (self.follow or self.position != at):
            with self.hold_sync():
                self.position, self.follow = at, False
        super()._selected(fields)

    def _move(self, _change: Any = None) -> None:
        calls = len(self._allocation.calls.all)
        # A page saved with another run may name a call that does not exist.
        self._allocation.shown = -1 if self.follow or not 0 <= self.position < calls else self.position
