"""Many runs as a table: the live view of a collection.

Search, filter and order are the collection's own and happen in the kernel. A page gets 50 rows at a time, and a run is read when
someone opens it.
"""

from __future__ import annotations

from typing import Any

from noetic_nb.errors import NoeticConfigError
from noetic_nb.interop._collection.run_collection import RunCollection, open_runs
from noetic_nb.runs import Run
from noetic_nb.widgets._runs.run_labels import RunLabels
from noetic_nb.widgets._runs.runs_reading import RunsReading
from noetic_nb.widgets._workbench.workbench import Workbench
from noetic_nb.widgets.base._run_view import RunView


class Runs(RunView):
    """Show the runs of a collection: search and filter them, look at one in a workbench, and select some.

    Parameters
    ----------
    collection : RunCollection
        The runs; of other sources of `noetic_nb.open_runs` one is made.
    by : str, optional
        A rater, who labels runs by keys with the values of the codebook of the first run: a digit gives a value, 0 takes it
        back. Labels of other raters are shown once both are done.

    Attributes
    ----------
    collection : RunCollection
        All runs.
    shown : RunCollection
        Those that the search and the filter of the page leave, in its order.
    selected : RunCollection
        Those whose rows are selected, in the order of `collection`.
    bench : Workbench or None
        The workbench below the table.

    Raises
    ------
    NoeticConfigError
        As `noetic_nb.open_runs`; ``NO_CODEBOOK`` where a rater is named and there is none.
    NoeticError
        ``invalid_run_file`` where files have changed since the collection was opened.

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
        # Nothing is followed: a run without events stands for those of the collection.
        super().__init__(Run(), self._table)

    @property
    def shown(self) -> RunCollection:
        """The runs that the page shows, on all its pages."""
        return self._table.shown

    @property
    def selected(self) -> RunCollection:
        """The runs that are selected."""
        return self._table.selected_runs

    def open_run(self, at: int) -> Workbench:
        """Show a workbench below the table; the one before is closed.

        Parameters
        ----------
        at : int
            The place of the run in `collection`, 0 for the first.

        Raises
        ------
        NoeticConfigError
            ``INVALID_OPTION`` where there is no such place.
        NoeticError
            Where the run cannot be read.
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
        """Return the facts of the runs that are shown, on all pages of the table.

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
