"""A run as people ask it: its tables, the effect of caching, the cost, the cause of a call, and its bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ContextCompacted, ModelCalled, RunEvent, SteeringDecided, ToolCalled
from noetic_nb.items import thaw
from noetic_nb.items._frozen import frozen_data
from noetic_nb.memory import MemoryLayer
from noetic_nb.models._client import Usage
from noetic_nb.models._pricing import cost_of
from noetic_nb.runs._labelled import LabelledEvents
from noetic_nb.runs._tables import Recorded, frame
from noetic_nb.steps import Registry, Tool

if TYPE_CHECKING:
    import pandas

    from noetic_nb.models._pricing import Price
    from noetic_nb.models.prompt_caching import CacheRules
    from noetic_nb.runs._cause import CauseReader
    from noetic_nb.tokens import Tokenizer


class _Names(Registry):
    """A registry that names everything, whether or not it was registered: a bundle is never refused for a function."""

    # Any: what a configuration refers to is whatever its user brought.
    def reference(self, thing: Any, where: str) -> dict[str, Any]:
        try:
            return super().reference(thing, where)
        except NoeticConfigError:
            if isinstance(thing, Tool):
                return {"$ref": f"tool:{thing.name}"}
            if isinstance(thing, MemoryLayer):
                return {"$ref": f"layer:{thing.id}"}
            return {"$ref": f"fn:{getattr(thing, '__name__', type(thing).__name__)}"}

    def codec_reference(self, output: Any, where: str) -> dict[str, Any]:
        try:
            return super().codec_reference(output, where)
        except NoeticConfigError:
            return {"$ref": f"codec:{type(output.codec).__name__}"}


def bundle_of(config: Any, described: Any, notes: str) -> dict[str, Any]:
    """Return the entry of `Run.bundle` for a configuration; `described` stands in where it cannot be written."""
    from noetic_nb.runtime import AgentConfig, dump_config  # most runs are read without an agent

    if not isinstance(config, AgentConfig):
        return {"config": described, "rules": None, "sources": {}, "notes": notes}
    try:
        data = dump_config(config, _Names())
    except (NoeticConfigError, TypeError, ValueError):
        data = described
    rules, sources = _rules(config.memory)
    return {"config": thaw(frozen_data(data)), "rules": rules, "sources": sources, "notes": notes}


def _rules(layers: Any) -> tuple[dict[str, Any] | None, dict[str, str]]:
    from noetic_nb.steering._layer import rulebook_of
    from noetic_nb.steering._rules.file_schema import RuleFile

    books = [book for layer in layers if (book := rulebook_of(layer)) is not None]
    if not books:
        return None, {}
    rules = tuple(rule for book in books for rule in book)
    return RuleFile.data_of(rules), {rule.id: rule.source for rule in rules if rule.source is not None}


class AskedEvents(LabelledEvents):
    """Events with answers that are worked out when they are asked for."""

    def __init__(self, run_id: str, events: list[RunEvent]) -> None:
        super().__init__(run_id, events)
        self._causes: CauseReader | None = None

    def to_frame(self, name: str) -> pandas.DataFrame:
        """Return one of the run's tables.

        Parameters
        ----------
        name : str
            ``turns``, ``allocations``, ``tokens``, ``items``, ``spans``, ``tools``, ``ledger``, ``decisions``, ``regulator`` or
            ``warnings``; what their columns mean is described in `noetic_nb.runs._tables`.

        Returns
        -------
        pandas.DataFrame
            One row per thing that happened, a new frame at each call. It begins with ``run_id``, ``thread_id``,
            ``execution_id``, ``turn``, ``seq`` and ``t_ms``, and has every column, with its type, when it has no row.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_TABLE`` for another name.
        """
        return frame(Recorded(self.run_id, self._events[:], self.turns), name)

    def caching(
        self,
        *,
        rules: CacheRules | str | None = None,
        price: Price | None = None,
        tokenizer: str | Tokenizer | None = None,
    ) -> pandas.DataFrame:
        """Return the effect of prompt caching on the agent's model calls: the prefix that each shares with the call before it.

        Parameters
        ----------
        rules : CacheRules or str, optional
            By which all models are taken to cache, or the name of a model whose rules these are. Where absent, what the provider
            of each model publishes; of a model of which nothing is known, nothing is predicted.
        price : pair of float or callable, optional
            US dollars per million (input, output) tokens, or a function of model and usage; that of the price list where absent.
        tokenizer : str, TokenCalibration or callable, optional
            What counted the tokens of the run, where its name alone does not say so.

        Returns
        -------
        pandas.DataFrame
            One row for each part of each request that the run has all of, after the columns that every table of a run begins
            with. ``call`` is its place among the agent's model calls (missing while it is under way), ``provider`` that of the
            rules (None: nothing is known of the ``model``), ``part``: ``tools``, ``system``, ``layer:<id>``, ``history`` or
            ``appended``.

            In tokens: ``tokens`` of the part, its framing included; ``shared``, those in the prefix shared with the call before
            it, of the same model in the same thread; ``cached``, those that the cache is predicted to hold, of all calls of the
            model in the run; ``written``, those that it is paid to take up; ``paid``, all of them at the price of ordinary input
            tokens. ``broke``: the shared prefix ends in this part. Those of an imported run are the billed tokens: each call
            brings what it was billed for beyond the call before, and ``tools`` is what no text of the first call accounts for.

            In US dollars: ``cost_fresh`` without a cache, ``cost_cached`` with it, missing where the price is not known. Of the
            whole call, as the provider counted: ``input_tokens``, and ``reported``, the cached ones of them; missing where nobody
            says.

        Raises
        ------
        NoeticConfigError
            ``INVALID_CACHE_RULES``, ``INVALID_PRICE``.

        References
        ----------
        .. [1] docs/behaviour/runs.md, "What caching does".

        Examples
        --------
        >>> from noetic_nb.runs import Run
        >>> Run("empty").caching().columns[6:12].to_list()
        ['call', 'model', 'provider', 'part', 'tokens', 'shared']
        """
        from noetic_nb.runs._requests.caching_table import caching_frame  # most runs are not asked

        return caching_frame(self.run_id, self.meta, self._events[:], rules, price, tokenizer)

    def cost(self) -> float | None:
        """Return the cost of all model calls in US dollars: as reported, else by the list of prices.

        Returns
        -------
        float or None
            The sum over the calls, those of children, judges and layers included, and over compactions that were billed apart.
            ``meta["cost"]`` of an imported run counts where its calls have no costs of their own. A call without one is priced by
            its tokens, its model and its time; input that nobody says was cached has the full price. None if the price of a
            call is not known, or its tokens are estimated.

        Examples
        --------
        >>> from noetic_nb.runs import Run
        >>> Run.from_messages([{"role": "user", "content": "hi"}]).cost()
        0.0
        """
        calls, named = self.select(ModelCalled), self.meta.get("estimated")
        estimated = set(named) if isinstance(named, list | tuple) else set()  # of a file, it may be anything
        reported = self.meta.get("cost")
        if isinstance(reported, int | float) and not any(call.cost is not None for call in calls):
            return float(reported)
        is_counted = not {"input_tokens", "output_tokens"} & estimated

        def listed(event: ModelCalled | ContextCompacted, counts: Usage) -> float | None:
            return cost_of(counts, model=event.model or "", at_ms=None if "t_ms" in estimated else event.t_ms)

        costs = [
            call.cost if call.cost is not None or not is_counted else listed(call, Usage(*call.counts))
            for call in calls
        ]
        costs += [
            listed(event, Usage(**event.usage)) for event in self.select(ContextCompacted) if event.usage is not None
        ]
        return None if None in costs else sum([cost for cost in costs if cost is not None], 0.0)

    def cause(
        self, decision_or_call: SteeringDecided | ToolCalled | int | None = None, *, seq: int | None = None
    ) -> pandas.DataFrame:
        """Return where each value of a call came from, as rules are told by ``call.origin``.

        Parameters
        ----------
        decision_or_call : SteeringDecided, ToolCalled or int
            The decision about a call of a tool, the call, or its place among the tool calls of the run, as in
            ``to_frame("tools")``; negative from the end. A child's is one of them.
        seq : int, optional
            In place of it: the ``seq`` of a decision or call, as the tables have it.

        Returns
        -------
        pandas.DataFrame
            One row for each text, number, True and False in the arguments, down to the last: ``argument`` (its path, such as
            ``items[0].id``), ``value`` (secrets replaced), ``kind`` and ``name`` of its origin (``"user"``, ``"system"``,
            ``"layer"``, ``"tool"``, ``"model"``; the name of the layer or tool), ``item`` (the place in the log of the thread of
            the item that wrote it first; missing where that stands elsewhere, as in a child's log, a layer's text or another
            thread), ``turn`` (that of the item) and ``via`` (the layers on the way, first to last). None and empty texts have no
            row, and a response has no arguments. ``attrs["judged"]`` says in one sentence whether rules looked at the call.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_CALL``, ``UNKNOWN_DECISION`` where the run has none such.

        References
        ----------
        .. [1] docs/behaviour/runs.md, "The cause of a call".

        Examples
        --------
        >>> import noetic_nb as nn
        >>> run = nn.lab.datasets.airline_run(26)
        >>> run.cause(0)[["argument", "kind", "item", "turn"]].values.tolist()
        [['user_id', 'user', 2, 2]]
        """
        from noetic_nb.runs._cause import CauseReader, cause_frame  # most runs are not asked

        if self._causes is None:
            self._causes = CauseReader(self)
        return cause_frame(self._causes, self._events, decision_or_call, seq)
