"""A recorded run under another configuration: rules, budgets, projection, layers, regulator.

In the open form every recorded point is judged as it was: the past stands, whatever the decisions would have done to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._replaying.open_replay import layers_in
from noetic_nb.lab._replaying.recorded_tape import checked_run
from noetic_nb.lab._replaying.regulator_readings import RegulatorReadings
from noetic_nb.models._client import ModelClient, check_clients
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run
from noetic_nb.tokenizers._named import asked_tokenizer
from noetic_nb.tokens import Tokenizer

__all__ = ["replay"]


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
    """Work a recorded run out again, with nothing changed or under another configuration.

    Parameters
    ----------
    run : Run
        Any run that has all of its turns; it is not changed.
    rules : RuleBook or iterable of rules, optional
        In place of those that the run was made with.
    budgets : mapping, optional
        By layer id, what `MemoryLayer` takes as its budget, or a pair of the least and the most tokens.
    projection : ProjectionPolicy or mapping, optional
        A whole policy, or those of its fields that are to be others: ``{"token_budget": 4_000}``.
    layers : iterable of str or MemoryLayer, optional
        Layers in place of the recorded ones; a text names a recorded layer that stays. Rules and regulator stay where they
        are not among them. Open: a layer recalls and stores over the recorded log, behind the recorded ones.
    regulator : Regulator, optional
        In place of the recorded one; a template, which learns nothing.
    model : ModelClient or mapping, optional
        Open: answers for judges, such as a `CassetteModel`. Closed: goes on where the run is no longer the recorded one.
    tools : iterable of tools, optional
        Closed: what runs then. Without, a call has its recorded result where the same call was recorded.
    mode : {"open", "closed"}
        Judge every recorded point, or go on from the first that differs.
    tokenizer : str, TokenCalibration or callable, optional
        What the run was counted with, where its name alone does not say so.

    Returns
    -------
    Run
        ``meta["replay"]`` has ``of``, ``mode``, ``changed``, ``kept`` (what could not be worked out and stays as it was recorded,
        and why), ``stopped`` (why a closed replay ended early) and, before and after, ``decisions``, ``regulator``, ``calls``,
        ``tokens``, ``drops`` and ``cost`` (US dollars). `Run.known_until` has by thread how far it is known to be what would have
        happened; ``after_known`` counts up to there, and ``known`` says so in one sentence.

    Raises
    ------
    NoeticConfigError
        ``RUN_INCOMPLETE``, ``RUN_NOT_ENDED``, ``INVALID_RUN``; ``NOT_RECORDED`` for budgets, projection or layers of a run
        that has no plans; ``OPEN_LOOP_ONLY``; ``INVALID_MODE``; what rules, budgets and projections raise.

    References
    ----------
    .. [1] docs/behaviour/lab.md, "Tape", "Counterfactuals".

    Examples
    --------
    >>> from noetic_nb.lab import datasets
    >>> run = datasets.airline_run(26)
    >>> rule = {"id": "once", "applies_to": "before_tool_call", "tools": "get_reservation_details", "when": "true"}
    >>> replay(run, rules=[rule]).meta["replay"]["decisions"]["after"]["deny"]
    6
    """
    if mode not in ("open", "closed"):
        raise NoeticConfigError(
            "INVALID_MODE", "A replay is open or closed.", given=mode, hint='Use mode="open" or mode="closed".'
        )
    checked_run(run)
    check_clients(model)
    counter = asked_tokenizer(tokenizer)
    if regulator is not None and not isinstance(regulator, Regulator):
        raise NoeticConfigError(
            "INVALID_REGULATOR", "That is no regulator.", given=regulator, hint="Use Regulator.for_user(name)."
        )
    listed = None if layers is None else layers_in(layers)
    if mode == "closed":
        from noetic_nb.lab._replaying.closed_replay import (
            closed_replay,  # with the runtime, which most replays never need
        )

        return closed_replay(
            run,
            rules=rules,
            budgets=budgets,
            projection=projection,
            layers=listed,
            regulator=regulator,
            model=model,
            tools=tools,
            tokenizer=counter,
        )
    if tools is not None:
        raise NoeticConfigError("INVALID_MODE", "An open replay runs no tool.", given=mode, hint='Use mode="closed".')
    readings = RegulatorReadings(
        run,
        rules=rules,
        budgets=budgets,
        projection=projection,
        layers=listed,
        model=model,
        tokenizer=counter,
    )
    return readings.replay(regulator)
