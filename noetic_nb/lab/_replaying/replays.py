"""Replay a recorded run under another configuration, or continue it; each part is recorded, given or live."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from noetic_nb._core.arguments import explained
from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._checks import check_one_of
from noetic_nb.lab._replaying.open_replay import checked_run, layers_in
from noetic_nb.lab._replaying.regulator_readings import RegulatorReadings
from noetic_nb.lab._rule_trial import as_snapshot, warn_of_misspelt_targets
from noetic_nb.models._client import ModelClient, check_clients
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run
from noetic_nb.runs._events.selected import CallName
from noetic_nb.runs._regulation.recorded_regulator import checked_regulator
from noetic_nb.runs._requests.recorded_requests import recorded_request
from noetic_nb.runs._requests.sent_request import RecordedRequest
from noetic_nb.tokenizers._named import asked_tokenizer
from noetic_nb.tokens import Tokenizer

Port: TypeAlias = Literal["recorded", "given", "asked"]


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A recorded run and a port for each part that it needs; `replay` and `fork` are settings of it.

    A port is *recorded* (the run answers), *given* (another part, evaluated) or *asked* (a live one). In the open form
    every recorded point is judged in its recorded context, and no decision changes the past. In the closed form the
    agent runs again and continues live from the first difference, or with `at` from that call on.
    """

    run: Run
    mode: Literal["open", "closed"] = "open"
    rules: Any = None
    budgets: Mapping[str, Any] | None = None
    projection: Any = None
    layers: Iterable[Any] | None = None
    regulator: Regulator | None = None
    model: ModelClient | Mapping[str, ModelClient] | None = None
    tools: Iterable[Any] | None = None
    tokenizer: str | Tokenizer | None = None
    at: RecordedRequest | None = None
    edit: Any = None
    turns: int | Literal["all"] = 0

    def __post_init__(self) -> None:
        check_one_of(("open", "closed"), "INVALID_MODE", mode=self.mode)
        checked_run(self.run)
        check_clients(self.model)
        counter = asked_tokenizer(self.tokenizer)
        if self.regulator is not None:
            checked_regulator(self.regulator)
        listed = None if self.layers is None else layers_in(self.layers)
        if self.mode == "open" and self.tools is not None:
            hint = 'Use mode="closed".'
            raise NoeticConfigError("INVALID_MODE", "An open replay does not run tools.", given=self.mode, hint=hint)
        object.__setattr__(self, "tokenizer", counter)
        object.__setattr__(self, "layers", listed)

    @property
    def ports(self) -> dict[str, Port]:
        """Return the source of each part's answers; the clock shows the run's times, and ids continue the run's."""
        live: Port = "given" if self.mode == "open" else "asked"
        layers = [part for part in (self.layers, self.budgets, self.projection) if part is not None]
        given = {
            "rules": self.rules,
            "regulator": self.regulator,
            "layers": layers or None,
            "tokenizer": self.tokenizer,
        }
        ports: dict[str, Port] = {name: "recorded" if part is None else "given" for name, part in given.items()}
        model: Port = "recorded" if self.model is None else live
        tools: Port = "recorded" if self.tools is None else live
        return {"model": model, "tools": tools, "clock": "recorded", "ids": "recorded", **ports}

    def result(self) -> Run:
        names = ("rules", "budgets", "projection", "layers", "model", "tokenizer")
        changes: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.mode == "open":
            return RegulatorReadings(self.run, **changes).replay(self.regulator)
        from noetic_nb.lab._replaying.live_replay import run_again  # imports the runtime

        more = {"tools": self.tools, "at": self.at, "edit": self.edit, "turns": self.turns}
        return run_again(self.run, **changes, regulator=self.regulator, **more)


@explained(positional="The run is first, the rest has names: lab.replay(run, rules=rules).")
def replay(
    run: Run,
    *,
    rules: Any = None,
    budgets: Mapping[str, Any] | None = None,
    projection: Any = None,
    layers: Iterable[Any] | None = None,
    regulator: Regulator | None = None,
    model: ModelClient | Mapping[str, ModelClient] | None = None,
    tools: Iterable[Any] | None = None,
    mode: Literal["open", "closed"] = "open",
    tokenizer: str | Tokenizer | None = None,
) -> Run:
    """Replay a recorded run, unchanged or under another configuration.

    See docs/behaviour/lab.md, "Tape", "Counterfactuals".

    Parameters
    ----------
    run : Run
        A run with all of its turns; it is not changed.
    rules : RuleBook or iterable of rules, optional
        Replaces the rules of the run. A misspelt tool or argument is a Python warning.
    budgets : mapping, optional
        By layer id, a budget as for `MemoryLayer`, or a pair of minimum and maximum tokens.
    projection : ProjectionPolicy or mapping, optional
        A complete policy, or a mapping of the changed fields: ``{"token_budget": 4_000}``.
    layers : iterable of str or MemoryLayer, optional
        Replaces the recorded layers; a text names a recorded layer to keep. Rules and regulator stay even if not
        listed. Open: a layer recalls and stores over the recorded log, after the recorded layers.
    regulator : Regulator, optional
        Replaces the recorded one; a template, which does not learn.
    model : ModelClient or mapping, optional
        Open: answers for judges, such as a `CassetteModel`. Closed: answers once the run has diverged.
    tools : iterable of tools, optional
        Closed: the tools to run then. Without them, a call has the recorded result of an equal call.
    mode : {"open", "closed"}
        Judge every recorded point, or continue live from the first difference.
    tokenizer : str, TokenCalibration or callable, optional
        The tokenizer of the run, if it is not identified by its name.

    Returns
    -------
    Run
        ``meta["replay"]`` has ``of``, ``mode``, ``changed``, ``kept`` (parts that could not be computed again, with the
        reason), ``stopped`` (why a closed replay ended early) and, before and after, ``decisions``, ``regulator``,
        ``calls``, ``tokens``, ``drops`` and ``cost`` (US dollars). `Run.known_until` has by thread how far the replay
        is known to be accurate; ``after_known`` counts up to there, and ``known`` summarises it in one sentence.

    Raises
    ------
    NoeticConfigError
        ``RUN_INCOMPLETE``, ``RUN_NOT_ENDED``, ``INVALID_RUN``; ``NOT_RECORDED`` for budgets, projection or layers of a
        run without plans; ``OPEN_LOOP_ONLY``; ``INVALID_MODE``; and the errors of rules, budgets and projections.

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> run = datasets.airline_run(26)
    >>> rule = {"id": "once", "applies_to": "before_tool_call", "tools": "get_reservation_details", "when": "true"}
    >>> replay(run, rules=[rule]).meta["replay"]["decisions"]["after"]["deny"]
    6
    """
    asked = Replay(
        run=run,
        mode=mode,
        rules=rules,
        budgets=budgets,
        projection=projection,
        layers=layers,
        regulator=regulator,
        model=model,
        tools=tools,
        tokenizer=tokenizer,
    )
    if rules is not None:
        warn_of_misspelt_targets(as_snapshot(rules), run)
    return asked.result()


@explained(at="Name a model call by its place: lab.fork(run, at=3, model=...).")
def fork(
    run: Run,
    *,
    at: CallName,
    model: Any = None,
    edit: str | Callable[[Sequence[Any]], Sequence[Any]] | None = None,
    rules: Any = None,
    layers: Iterable[Any] | None = None,
    tools: Iterable[Any] | None = None,
    thread_id: str | None = None,
    turns: int | Literal["all"] = 0,
    tokenizer: str | Tokenizer | None = None,
) -> Run:
    """Continue a recorded run from a model call, with changes.

    The part before the call runs again on the tape, so that layers, rules and regulator have its state. The fork ends
    with the turn of the call, because later user messages answered something else; `turns` can include them. See
    docs/behaviour/lab.md, "Counterfactuals".

    Parameters
    ----------
    run : Run
        A run of this runtime with all of its turns; it is not changed.
    at : int or ModelCalled
        Index among the agent's model calls of the run, negative from the end, or the event.
    model : ModelClient or mapping
        Answers this call and all later ones.
    edit : str or callable, optional
        A text replaces the latest user message; a function gets the history that was sent with the call and returns its
        replacement, from this call on.
    rules : RuleBook or iterable of rules, optional
        The rules from this call on.
    layers : iterable of str or MemoryLayer, optional
        The agent's layers, from the beginning; a text names a recorded layer to keep.
    tools : iterable of tools, optional
        The tools from this call on. Without them, a call has the recorded result of an equal call.
    thread_id : str, optional
        Count only the calls of this thread.
    turns : int or "all"
        The number of the user's later messages in this thread to include, as written. Grades and corrections are left
        out, because they were about other answers.
    tokenizer : str, TokenCalibration or callable, optional
        The tokenizer of the run, if it is not identified by its name.

    Returns
    -------
    Run
        The part before the call and its continuation, with ``meta["replay"]`` as for `replay`.

    Raises
    ------
    NoeticConfigError
        ``UNKNOWN_CALL``, ``MODEL_NEEDED``, ``OPEN_LOOP_ONLY``, ``NO_AGENT``, ``INVALID_EDIT``, ``INVALID_COUNT``, and
        the errors of `replay`.

    Examples
    --------
    >>> import noetic_nb as nn
    >>> config = nn.AgentConfig(name="echo", step=nn.react(model="scripted"))
    >>> harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Hello!"]))
    >>> run = nn.record(harness)
    >>> _ = nn.run_sync(harness.execute("Hi"))
    >>> forked = fork(run, at=0, edit="Bonjour", model=nn.ScriptedModel(["Salut !"]))
    >>> forked.turns[0].query, forked.turns[0].text
    ('Bonjour', 'Salut !')
    """
    checked_run(run)
    return Replay(
        run=run,
        mode="closed",
        rules=rules,
        layers=layers,
        model=model,
        tools=tools,
        tokenizer=tokenizer,
        at=recorded_request(run, at, thread_id=thread_id),
        edit=edit,
        turns=turns,
    ).result()
