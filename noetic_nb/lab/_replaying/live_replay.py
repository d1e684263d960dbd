"""Run the agent of a recorded run again with some parts exchanged, from the tape as long as it does not diverge."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from noetic_nb._core.arguments import closest
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ItemsAppended, ModelCalled, QualityGiven, RegulatorSaw, RuleChanged, TurnStarted
from noetic_nb.ids import SYSTEM_IDS
from noetic_nb.items import thaw
from noetic_nb.items._registry import ANY_ITEMS
from noetic_nb.lab._replaying.plan_replay import plan_changes
from noetic_nb.lab._replaying.recorded_parts import Tape, agent_of
from noetic_nb.lab._replaying.replay_report import Kept, horizon_of_tape, note_counts, note_known, summary
from noetic_nb.lab._replaying.rules_replay import max_entries_of, recorded_rules
from noetic_nb.lab._rule_trial import as_snapshot
from noetic_nb.layers import regulation
from noetic_nb.layers._regulator_layer import factory_of, for_each, is_regulation, regulator_of
from noetic_nb.memory import MemoryHooks, MemoryLayer, ProjectionPolicy
from noetic_nb.regulator import Regulator
from noetic_nb.runs import Run, record
from noetic_nb.runs._labelled import with_labels_of
from noetic_nb.runs._requests.sent_request import RecordedRequest, recorded_counter
from noetic_nb.runtime import AgentConfig, AgentHarness
from noetic_nb.steering import RuleBook, steering
from noetic_nb.steering._layer import policy_of, rulebook_of
from noetic_nb.steps import LLMStep, Step, Tool, ToolStep
from noetic_nb.steps._function_tools import as_tools
from noetic_nb.steps._records import rebuilt
from noetic_nb.sync import awaited, run_sync
from noetic_nb.tokens import Tokenizer


def _listed(tools: Any) -> tuple[Tool, ...]:
    several = isinstance(tools, Iterable) and not isinstance(tools, str | Mapping)
    found: Any = as_tools(() if tools is None else tuple(tools) if several else tools)
    if isinstance(found, tuple) and all(isinstance(tool, Tool) for tool in found):
        return found
    what = "Tools must be tools or functions."
    raise NoeticConfigError("INVALID_TOOL", what, given=tools, hint="For example: tools=[find].")


# Origins of items that the runtime makes; an answer may also come from a child.
_MADE_HERE: Final = frozenset({"tool", "guidance", "step", "model"})
_COUNTED: Final = re.compile(r"(.*\D)([1-9]\d{0,8})")


class _Ids:
    """Ids that continue those of the run's source: counted ids, the run's own ids, or ids of equal length."""

    def __init__(self, run: Run) -> None:
        # The user's items are passed in again with their ids, and taped answers have theirs.
        answered = {item.get("id") for event in run.select(ModelCalled) for item in event.items}
        made = [
            item["id"]
            for event in run.select(ItemsAppended)
            if event.origin in _MADE_HERE or (event.origin == "user" and event.where.depth)
            for item in event.items
            if "id" in item and item["id"] not in answered
        ]
        self._known = list(dict.fromkeys(made))
        self._length = max(map(len, made), default=0)
        asked = [
            item.get("id") for event in run.select(ItemsAppended) if event.origin == "user" for item in event.items
        ]
        parts = [_COUNTED.fullmatch(str(known)) for known in made or asked]
        prefixes = {None if part is None else part[1] for part in parts}
        self._prefix = prefixes.pop() if len(prefixes) == 1 else None
        self._number = 0

    def counted(self, item_id: Any) -> int | None:
        """Return the number of an id, or None if the run's source did not count it."""
        part = _COUNTED.fullmatch(item_id) if isinstance(item_id, str) else None
        return int(part[2]) if part is not None and part[1] == self._prefix else None

    def go_on_from(self, number: int) -> None:
        """Set the number of the next id."""
        self._number = number - 1

    def new(self, kind: str) -> str:
        if kind != "item":
            return SYSTEM_IDS.new(kind)
        if self._prefix is not None:
            self._number += 1
            return f"{self._prefix}{self._number}"
        return self._known.pop(0) if self._known else SYSTEM_IDS.new(kind).ljust(self._length, "0")


class RecordedAgent:
    """The agent of a run with some parts exchanged."""

    def __init__(self, run: Run, config: AgentConfig, tape: Tape) -> None:
        self.run, self.config, self.tape = run, config, tape
        self.memory: list[MemoryLayer] = list(config.memory)
        self.projection = config.projection
        self.book: RuleBook | None = None
        self.next_rules: Any = None
        self._ids = _Ids(run)
        self._is_changed = self._is_begun = False

    def lay(self, layers: Sequence[Any] | None, rules: Any, regulator: Regulator | None) -> None:
        """Exchange the layers that are named, the rules, and the regulator."""
        self._is_changed = not (layers is None and rules is None and regulator is None)
        known = {layer.id: layer for layer in self.config.memory}
        own = {layer.id for layer in self.config.memory if rulebook_of(layer) is not None or is_regulation(layer)}
        if layers is not None:
            for name in layers:
                if isinstance(name, str) and name not in known:
                    what = "The agent has no such layer."
                    hint = f"{closest(name, known)} It has {', '.join(map(repr, known)) or 'none'}.".strip()
                    raise NoeticConfigError("UNKNOWN_LAYER_REFERENCE", what, given=name, hint=hint)
            chosen = [known[layer] if isinstance(layer, str) else layer for layer in layers]
            ids = {layer.id for layer in chosen}
            self.memory = [*chosen, *[known[layer_id] for layer_id in known if layer_id in own and layer_id not in ids]]
        self._lay_rules(rules)
        self._lay_regulator(regulator)

    def _lay_rules(self, rules: Any) -> None:
        found = recorded_rules(self.run)
        before = next((at for at, layer in enumerate(self.memory) if rulebook_of(layer) is not None), None)
        if before is None:
            if rules is not None:
                self.memory.append(steering(self._book(as_snapshot(rules))))
            return
        layer = self.memory[before]
        if layer not in self.config.memory and rules is None:
            self.book = rulebook_of(layer)
            return
        first = found.at(0) if found is not None else None
        current = rulebook_of(layer)
        assert current is not None
        snapshot = as_snapshot(rules) if rules is not None else first or current.snapshot
        policy = policy_of(layer)
        assert policy is not None
        self.memory[before] = steering(
            self._book(snapshot),
            scope=layer.scope,
            on_error=policy.on_error,
            on_unparseable=policy.on_unparseable,
            max_retries=policy.max_retries,
            max_ledger_entries=max_entries_of(layer),
            timeouts=layer.timeouts,
            late_verdicts=policy.late_verdicts,
        )

    def _book(self, rules: Iterable[Any]) -> RuleBook:
        self.book = RuleBook(rules)
        return self.book

    def _lay_regulator(self, regulator: Regulator | None) -> None:
        grades = [event.quality for event in self.run.select(QualityGiven) if event.source == "grader"]
        grader = (lambda reply: grades.pop(0) if grades else None) if grades else None
        before = next((at for at, layer in enumerate(self.memory) if is_regulation(layer)), None)
        if before is None:
            if regulator is not None:
                self.memory.append(regulation(for_each(regulator), grader=grader))
            return
        # Its layer holds what it learned in the recorded run, but the replay begins before that.
        layer = self.memory[before]
        template = regulator or (None if factory_of(layer) else regulator_of(layer))
        makes = factory_of(layer) if template is None else for_each(template)
        if makes is not None:
            self.memory[before] = regulation(makes, grader=grader, id=layer.id, slot=layer.slot)

    def switch_rules(self, rules: Any) -> None:
        """Apply other rules from the forked call on."""
        self.next_rules = as_snapshot(rules)
        if self.book is None:
            self.memory.append(steering(self._book(())))

    def plan(self, budgets: Mapping[str, Any], policy: Mapping[str, Any]) -> None:
        self._is_changed = bool(self._is_changed or budgets or policy)
        pairs = {
            layer_id: {"min": given[0], "max": given[1]} if isinstance(given, tuple | list) else given
            for layer_id, given in budgets.items()
        }
        self.memory = [replace(layer, budget=pairs[layer.id]) if layer.id in pairs else layer for layer in self.memory]
        if policy:
            self.projection = ProjectionPolicy(**{**self.projection.model_dump(), **policy})

    def _taped(self) -> AgentConfig:
        tape = self.tape

        def change(step: Step) -> dict[str, Any]:
            match step:
                case LLMStep(tools=tuple() as tools):
                    return {"tools": tuple([tape.taped(tool) for tool in tools])}
                case LLMStep(tools=chosen) if callable(chosen):

                    async def choose(*args: Any) -> Any:
                        found = await awaited(chosen(*args))
                        return [tape.taped(tool) for tool in _listed(found)]

                    return {"tools": choose}
                case ToolStep():
                    return {"tool": tape.taped(step.tool)}
                case _:
                    return {}

        config = self.config
        return config.model_copy(
            update={
                "step": None if config.step is None else rebuilt(config.step, change),
                "tools": tuple([tape.taped(tool) for tool in config.tools]),
                "memory": tuple(self.memory),
                "projection": self.projection,
            }
        )

    def _drawn_again(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return a message with new ids for those counted by the run's own source."""
        numbers = [self._ids.counted(item.get("id")) for item in items]
        is_same = not (self._is_changed or self.tape.diverged or self.tape.forked)
        first = next((number for number in numbers if number is not None), None)
        if first is not None and (is_same or not self._is_begun):
            self._ids.go_on_from(first)
        self._is_begun = True
        return [
            item if number is None else {**item, "id": self._ids.new("item")}
            for item, number in zip(items, numbers, strict=True)
        ]

    async def live(self, events: Sequence[Any], edited: tuple[int, str] | None = None) -> Run:
        """Run the turns that begin in some events; `edited` is the index of one, and the new text of its message."""
        clock = self.tape.clock
        counted = self.tape.tokenizer
        if counted is None and self.config.tokenizer is None:
            counted = recorded_counter(self.run.events)
        harness = AgentHarness(
            self._taped(),
            model=_Switching(self),
            clock=clock,
            ids=self._ids,
            tokenizer=counted,
            approve=self.tape.approve,
        )
        again = record(harness, run=Run(f"{self.run.run_id}-replay", meta={**self.run.meta, "source": "replay"}))
        with_labels_of(again, self.run)
        for place, event in enumerate(events):
            if self.tape.stopped is not None:
                break
            clock.t_ms = max(clock.t_ms, event.t_ms)
            thread_id = event.where.thread_id
            try:
                match event:
                    case ItemsAppended(origin="seed"):
                        harness.append(thread_id, [thaw(item) for item in event.items])
                    case TurnStarted():
                        self.tape.begin_turn(thread_id, event.where.turn)
                        items = self._drawn_again(_message(self.run.events, event))
                        if edited is not None and place == edited[0]:
                            items = _with_text(items, edited[1])
                        await harness.execute(items, thread_id=thread_id, resource_id=event.resource_id)
                    case QualityGiven(source=source) if source != "grader":
                        await harness.feedback(thread_id, quality=event.quality, source=source)
                    case RegulatorSaw(event={"kind": "user_correction", "correction_message": str() as said}):
                        await harness.correct(thread_id, said)
            except NoeticConfigError:
                raise
            except Exception:  # the run records a failed turn
                pass
        again.stop_recording()
        for thread_id, waiting in self.tape.left().items():
            if self.tape.until is None and self.tape.stopped is None:
                self.tape.diverged.setdefault(thread_id, f"the run ended before call {waiting}")
        return again


def _message(events: Sequence[Any], started: TurnStarted) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for event in events:
        if not isinstance(event, ItemsAppended):
            continue
        if event.where.thread_id != started.where.thread_id or event.where.depth:
            continue
        for at, item in enumerate(event.items, event.start):
            if started.start <= at < started.stop:
                found.append(thaw(item))
    return found or [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": started.query}]}]


def _with_text(items: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    for at in range(len(items) - 1, -1, -1):
        if items[at].get("role") == "user":
            content = [{"type": "input_text", "text": text}]
            return [*items[:at], {**items[at], "content": content}, *items[at + 1 :]]
    hint = "Pass a function of items."
    raise NoeticConfigError("INVALID_EDIT", "The turn of this call has no user message.", given=text, hint=hint)


class _Switching:
    """The tape as a model client that applies other rules once the forked call is reached."""

    def __init__(self, agent: RecordedAgent) -> None:
        self._agent = agent

    async def complete(self, request: Any) -> Any:
        agent = self._agent
        rules = agent.next_rules
        if rules is not None and agent.book is not None and agent.tape.reaches(request.thread_id):
            agent.next_rules = None
            for rule in tuple(agent.book):
                agent.book.remove(rule.id)
            for rule in rules:
                agent.book.put(rule)
        return await agent.tape.complete(request)


def run_again(
    run: Run,
    *,
    rules: Any = None,
    budgets: Mapping[str, Any] | None = None,
    projection: Any = None,
    layers: Sequence[Any] | None = None,
    regulator: Regulator | None = None,
    model: Any = None,
    tools: Iterable[Any] | None = None,
    tokenizer: Tokenizer | None = None,
    at: RecordedRequest | None = None,
    edit: Any = None,
    turns: int | Literal["all"] = 0,
) -> Run:
    """Run a recorded run again, to its end or to the turn of a call `at` that another model answers; see `Replay`."""
    is_fork = at is not None
    given_tools = {tool.name: tool for tool in _listed(tools)}
    # A fork applies other rules only from its call on.
    first_rules = None if is_fork else rules
    config = agent_of(run, given_tools, rules=first_rules, layers=layers)
    if is_fork:
        _check_fork(model, edit, turns)
    tape = Tape(run, model, given_tools, at, tokenizer)
    agent = RecordedAgent(run, config, tape)
    agent.lay(layers, first_rules, regulator)
    changes = plan_changes(run, budgets, projection, None)
    agent.plan(changes.budgets, changes.policy)
    if is_fork and rules is not None:
        agent.switch_rules(rules)
    edited: list[Exception | None] = []
    if callable(edit):
        agent.memory.append(_edit_layer(tape, edit, edited))
    events = tuple(run.events)
    said: tuple[int, str] | None = None
    if at is not None:
        place = _turn_of(events, at.where, at.seq)
        said = (place, edit) if isinstance(edit, str) else None
        later = [
            event
            for event in events[place + 1 :]
            if isinstance(event, TurnStarted) and event.where.thread_id == at.where.thread_id
        ]
        events = (*events[: place + 1], *(later if turns == "all" else later[:turns]))
    again = run_sync(agent.live(events, said))
    if edited and edited[0] is not None:
        what = f"The edit failed: {type(edited[0]).__name__}: {edited[0]}"
        hint = "It is called with the items that the call would be sent, and returns those that it is sent instead."
        raise NoeticConfigError("INVALID_EDIT", what, given=edit, hint=hint) from edited[0]
    if at is not None and callable(edit) and not edited:
        why = "The edit had no effect: this call repeats one whose history was chosen before."
        raise NoeticConfigError("INVALID_EDIT", why, given=at.place, hint="Fork from the first call of its step.")
    given = {"rules": rules, "budgets": budgets, "projection": projection, "layers": layers, "regulator": regulator}
    if is_fork:
        given = {"model": model, "edit": edit, "rules": rules, "layers": layers, "tools": tools, "turns": turns or None}
    again.meta["replay"] = {
        "of": run.run_id,
        "mode": "fork" if is_fork else "closed",
        **({"diverged": tape.diverged} if at is None else {"at": at.place}),
        "changed": [name for name, value in given.items() if value is not None],
        "kept": _kept(run, again, rules, is_fork=is_fork),
        "stopped": tape.stopped,
        **summary(run, again, views_changed=False),
    }
    # A fork has no later user messages, so it ends at its intended end.
    recorded = again if is_fork else run
    note_known(again, horizon_of_tape(recorded, again, stopped=tape.stopped, approvals=tape.approvals))
    return again


def _check_fork(model: Any, edit: Any, turns: Any) -> None:
    if model is None:
        hint = "Pass model=, such as nn.ScriptedModel([...]) or the client that was used."
        raise NoeticConfigError("MODEL_NEEDED", "From this call on a model is needed.", given=model, hint=hint)
    if edit is not None and not isinstance(edit, str) and not callable(edit):
        hint = 'For example: edit="Another message".'
        raise NoeticConfigError("INVALID_EDIT", "An edit must be text or a function of items.", given=edit, hint=hint)
    if turns != "all" and (type(turns) is not int or turns < 0):
        raise NoeticConfigError(
            "INVALID_COUNT",
            "This is not a number of turns.",
            given=turns,
            hint='Pass for example turns=2, or turns="all".',
        )


def _kept(run: Run, again: Run, rules: Any, *, is_fork: bool) -> list[dict[str, Any]]:
    kept = Kept()
    note_counts(run, again, kept)
    for seq, event in enumerate(run.events):
        if isinstance(event, RuleChanged) and rules is None and not is_fork:
            known = isinstance(run._config, AgentConfig)  # a file only has the rules at its end
            why = "edits during the run are left out" if known else "the rules are those of the end of the run"
            kept.add("rules", why, seq)
    return kept.rows()


def _turn_of(events: Sequence[Any], where: Any, seq: int) -> int:
    for place in range(seq, -1, -1):
        event = events[place]
        if isinstance(event, TurnStarted) and (event.where.thread_id, event.where.turn) == (
            where.thread_id,
            where.turn,
        ):
            return place
    what = "The start of the turn of this call was not recorded."
    raise NoeticConfigError("NOT_RECORDED", what, given=where.turn, hint="Fork another.")


def _edit_layer(tape: Tape, edit: Callable[[Sequence[Any]], Any], edited: list[Exception | None]) -> MemoryLayer:
    """Return a layer that shows the model another history from the forked call on."""
    shown: dict[str, tuple[int, list[Any]]] = {}

    async def project_history(p: Any) -> Any:
        if not tape.reaches(p.ctx.thread_id):
            return None
        if p.ctx.execution_id not in shown:
            if edited:  # another execution, with a history of its own
                return None
            edited.append(None)
            try:
                chosen = await awaited(edit(tuple(p.items)))
                shown[p.ctx.execution_id] = len(p.items), [ANY_ITEMS.parse(item) for item in chosen]
            except Exception as exc:  # the hook's failure alone would leave the history as it was
                edited[0] = exc
                raise
        count, items = shown[p.ctx.execution_id]
        return {"items": [*items, *p.items[count:]]}

    return MemoryLayer(
        id="fork-edit", slot=10_000, scope="execution", budget=0, hooks=MemoryHooks(project_history=project_history)
    )
