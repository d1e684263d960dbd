"""The computed answers of a run: its tables, caching, cost, the cause of a call, and its bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetic_nb._core.arguments import explained
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
    """A registry that returns a name for any object, registered or not: an unregistered function never blocks a bundle."""

    # Any: a configuration may refer to objects of any type.
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
    """Return the `Run.bundle` entry for a configuration; `described` replaces it if it cannot be serialised."""
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


class ComputedEvents(LabelledEvents):
    """Events with tables and other results that are computed on demand."""

    def __init__(self, run_id: str, events: list[RunEvent]) -> None:
        super().__init__(run_id, events)
        self._causes: CauseReader | None = None

    @explained(name="Ask for a table: run.to_frame('turns'), or 'tools', 'ledger', 'tokens' and so on.")
    def to_frame(self, name: str) -> pandas.DataFrame:
        """Return one of the run's tables.

        Parameters
        ----------
        name : str
            ``turns``, ``allocations``, ``tokens``, ``items``, ``spans``, ``tools``, ``ledger``, ``decisions``, ``regulator``,
            ``compactions`` or ``warnings``. ``noetic_nb.runs.COLUMNS`` describes their columns.

        Returns
        -------
        pandas.DataFrame
            One row per recorded fact, a new frame at each call. Its first columns are ``run_id``, ``thread_id``,
            ``execution_id``, ``turn``, ``seq`` and ``t_ms``. A table without rows still has every column with its type.

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
        """Return the effect of prompt caching on the agent's model calls: the prefix that each call shares with the previous one.

        Parameters
        ----------
        rules : CacheRules or str, optional
            Caching rules for all models, or the name of a model whose rules to use. By default, the published rules of each
            model's provider; for an unknown model nothing is predicted.
        price : pair of float or callable, optional
            US dollars per million (input, output) tokens, or a function of model and usage. By default, the price list.
        tokenizer : str, TokenCalibration or callable, optional
            The counter that counted the run's tokens, if its recorded name is not enough to find it.

        Returns
        -------
        pandas.DataFrame
            One row for each part of each completely recorded request. After the columns that all tables share: ``call``, its
            index among the agent's model calls (missing while it is running); ``provider`` of the rules (None for an unknown
            ``model``); ``part``: ``tools``, ``system``, ``layer:<id>``, ``history`` or ``appended``.

            In tokens: ``tokens`` of the part with its framing; ``shared``, the tokens in the prefix shared with the
            previous call of the same model in the same thread; ``cached``, the tokens predicted to be read from the
            cache, over all calls of the model in the run; ``written``, the tokens billed as cache writes; ``paid``, the
            equivalent number of ordinary input tokens. ``broke``: the shared prefix ends in this part. In an imported
            run these are billed tokens: each call adds its bill beyond the previous call's; ``tools`` is the part of
            the first bill that no recorded text explains.

            In US dollars: ``cost_fresh`` without a cache and ``cost_cached`` with one, missing if the price is unknown. For the
            whole call, as the provider counted: ``input_tokens``, of which ``reported`` were cached; missing if not reported.

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
        from noetic_nb.runs._requests.caching_table import caching_frame  # most runs are never asked for this

        return caching_frame(self.run_id, self.meta, self._events[:], rules, price, tokenizer)

    def cost(self) -> float | None:
        """Return the cost of all model calls in US dollars: as reported, otherwise from the price list.

        Returns
        -------
        float or None
            The sum over all calls (children, judges and layers included) and over separately billed compactions. An imported
            run whose calls have no costs uses ``meta["cost"]``. A call without a cost is priced by its tokens, model and time;
            input not reported as cached costs the full price. None if a call's price is unknown or its tokens are estimated.

        Examples
        --------
        >>> from noetic_nb.runs import Run
        >>> Run.from_messages([{"role": "user", "content": "hi"}]).cost()
        0.0
        """
        calls, named = self.select(ModelCalled), self.meta.get("estimated")
        estimated = set(named) if isinstance(named, list | tuple) else set()  # in a loaded file, it may have any type
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
        """Return the origin of each value in a call, as rules get it from ``call.origin``.

        Parameters
        ----------
        decision_or_call : SteeringDecided, ToolCalled or int
            The decision about a tool call, the call itself, or its index among the tool calls of the run, as in
            ``to_frame("tools")``. Negative indices count from the end. Calls of children are included.
        seq : int, optional
            Alternative: the ``seq`` of a decision or call, as in the tables.

        Returns
        -------
        pandas.DataFrame
            One row for each text, number, True and False in the arguments, nested ones included: ``argument`` (its
            path, such as ``items[0].id``), ``value`` (secrets replaced), ``kind`` and ``name`` of its origin
            (``"user"``, ``"system"``, ``"layer"``, ``"tool"``, ``"model"``; the name of the layer or tool), ``item``
            (position in the thread's log of the first item that has it; missing if that is in a child's log, a layer's
            text or another thread), ``turn`` (of that item) and ``via`` (the layers it passed through, in order). None
            and empty texts have no row, and a response has no arguments. ``attrs["judged"]`` says in one sentence
            whether rules checked the call.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_CALL`` or ``UNKNOWN_DECISION`` if the run has no such call or decision.

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
        from noetic_nb.runs._cause import CauseReader, cause_frame  # most runs are never asked for this

        if self._causes is None:
            self._causes = CauseReader(self)
        return cause_frame(self._causes, self._events, decision_or_call, seq)
