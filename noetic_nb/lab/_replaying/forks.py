"""A recorded run, gone on with from one of its model calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ModelCalled, TurnStarted
from noetic_nb.lab._replaying.recorded_agent import RecordedAgent, agent_of, tools_by_name
from noetic_nb.lab._replaying.recorded_answers import Tape
from noetic_nb.lab._replaying.recorded_tape import checked_run
from noetic_nb.lab._replaying.replay_report import Kept, horizon_of_tape, note_counts, note_known, summary
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.models._client import check_clients
from noetic_nb.runs import Run
from noetic_nb.runs._requests.recorded_requests import recorded_request
from noetic_nb.sync import awaited, run_sync
from noetic_nb.tokenizers._named import asked_tokenizer
from noetic_nb.tokens import Tokenizer

__all__ = ["fork"]


def fork(
    run: Run,
    *,
    at: int | ModelCalled,
    model: Any = None,
    edit: str | Callable[[Sequence[Any]], Sequence[Any]] | None = None,
    rules: Any = None,
    layers: Iterable[Any] | None = None,
    tools: Iterable[Any] | None = None,
    thread_id: str | None = None,
    turns: int | Literal["all"] = 0,
    tokenizer: str | Tokenizer | None = None,
) -> Run:
    """Go on from a model call of a recorded run, with something else.

    What was before the call is run again on the tape, so that layers, rules and regulator know of it. The fork ends with the
    turn of the call, as what the user wrote later was written to another answer; `turns` lets it follow all the same.

    Parameters
    ----------
    run : Run
        A run of this runtime that has all of its turns; it is not changed.
    at : int or ModelCalled
        Place among the agent's model calls of the run, negative from the end, or the event.
    model : ModelClient or mapping
        Answers this call and all that follow.
    edit : str or callable, optional
        A text takes the place of the latest message of the user; a function gets the history as the call was sent it and
        returns what is sent instead, from this call on.
    rules : RuleBook or iterable of rules, optional
        In force from this call on.
    layers : iterable of str or MemoryLayer, optional
        The agent's layers, from the beginning; a text names a recorded one that stays.
    tools : iterable of tools, optional
        What runs from this call on. Without, a call has its recorded result where the same call was recorded.
    thread_id : str, optional
        Count the calls of this thread only.
    turns : int or "all"
        How many of the user's later messages in this thread follow, as they were written. Grades and corrections do not: they
        were about other answers.
    tokenizer : str, TokenCalibration or callable, optional
        What the run was counted with, where its name alone does not say so.

    Returns
    -------
    Run
        What was before and what follows, with ``meta["replay"]`` as of `replay`.

    Raises
    ------
    NoeticConfigError
        ``UNKNOWN_CALL``, ``MODEL_NEEDED``, ``OPEN_LOOP_ONLY``, ``NO_AGENT``, ``INVALID_EDIT``, ``INVALID_COUNT``, and what
        `replay` raises.

    References
    ----------
    .. [1] docs/behaviour/lab.md, "Counterfactuals".

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
    check_clients(model)
    counter = asked_tokenizer(tokenizer)
    request = recorded_request(run, at, thread_id=thread_id)
    listed = None if layers is None else list(layers)
    given_tools = tools_by_name(tools)
    config = agent_of(run, given_tools, layers=listed)
    if model is None:
        raise NoeticConfigError(
            "MODEL_NEEDED",
            "From this call on somebody has to answer.",
            given=model,
            hint="Pass model=, such as nn.ScriptedModel([...]) or the client that was used.",
        )
    if edit is not None and not isinstance(edit, str) and not callable(edit):
        raise NoeticConfigError(
            "INVALID_EDIT",
            "An edit is a text or a function of items.",
            given=edit,
            hint='Such as edit="Another message".',
        )
    if turns != "all" and (type(turns) is not int or turns < 0):
        raise NoeticConfigError(
            "INVALID_COUNT", "That is no number of turns.", given=turns, hint='Such as turns=2, or turns="all".'
        )
    tape = Tape(run, model, given_tools, request, counter)
    agent = RecordedAgent(run, config, tape)
    agent.lay(listed, None, None)
    if rules is not None:
        agent.switch_rules(rules)
    edited: list[bool] = []
    if callable(edit):
        agent.memory.append(_edit_layer(tape, edit, edited))
    events = tuple(run.events)
    place = _turn_of(events, request.where, request.seq)
    later = [
        event
        for event in events[place + 1 :]
        if isinstance(event, TurnStarted) and event.where.thread_id == request.where.thread_id
    ]
    lived = (*events[: place + 1], *(later if turns == "all" else later[:turns]))
    again = run_sync(agent.live(lived, (place, edit) if isinstance(edit, str) else None))
    if callable(edit) and not edited:
        raise NoeticConfigError(
            "INVALID_EDIT",
            "The edit had no effect: this call repeats one whose history was chosen before.",
            given=request.place,
            hint="Fork from the first call of its step.",
        )
    kept = Kept()
    note_counts(run, again, kept)
    given = {"edit": edit, "rules": rules, "layers": layers, "tools": tools, "turns": turns or None}
    again.meta["replay"] = {
        "of": run.run_id,
        "mode": "fork",
        "at": request.place,
        "changed": ["model", *[name for name, value in given.items() if value is not None]],
        "kept": kept.rows(),
        "stopped": tape.stopped,
        **summary(run, again, views_changed=False),
    }
    # What the user wrote later is no part of a fork, so that it ends where it was to end.
    points = horizon_of_tape(again, again, stopped=tape.stopped, approvals=tape.approvals)
    note_known(again, points)
    return again


def _turn_of(events: Sequence[Any], where: Any, seq: int) -> int:
    for place in range(seq, -1, -1):
        event = events[place]
        if isinstance(event, TurnStarted) and (event.where.thread_id, event.where.turn) == (
            where.thread_id,
            where.turn,
        ):
            return place
    raise NoeticConfigError(
        "NOT_RECORDED",
        "The turn of this call was not recorded from its beginning.",
        given=where.turn,
        hint="Fork another.",
    )


def _edit_layer(tape: Tape, edit: Callable[[Sequence[Any]], Sequence[Any]], edited: list[bool]) -> MemoryLayer:
    """Return a layer that shows the model another history from the forked call on."""
    shown: dict[str, tuple[int, list[Any]]] = {}

    async def project_history(p: Any) -> Any:
        if not tape.reaches(p.ctx.thread_id):
            return None
        if p.ctx.execution_id not in shown:
            if edited:  # another execution, whose history is its own
                return None
            edited.append(True)
            shown[p.ctx.execution_id] = len(p.items), list(await awaited(edit(tuple(p.items))))
        count, items = shown[p.ctx.execution_id]
        return {"items": [*items, *p.items[count:]]}

    return MemoryLayer(
        id="fork-edit", slot=10_000, scope="execution", budget=0, hooks=MemoryHooks(project_history=project_history)
    )
