"""The layer that feeds the events of an agent to a regulator, and turns circuit breaks into stops.

A regulator's counts belong to a task, that is, a thread; its learned state belongs to a person, that is, a resource.
The regulator that is passed in is a template: it is forked for each thread and never changes. The memory of a user
stays with that user: for a resource with another id it is refused.
"""

from __future__ import annotations

import json
import math
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Final

from noetic_nb._core.arguments import explained
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import QualityGiven, RegulatorDecided, RegulatorSaw
from noetic_nb.items import assistant_text, freeze, input_message
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.items._json_text import compact_json
from noetic_nb.layers._helpers.collaborators import check_function
from noetic_nb.memory import (
    ExecutionContext,
    MemoryHooks,
    MemoryLayer,
    SteeringAction,
    SteeringDecision,
    Stop,
    params,
    resolve_scope_key,
)
from noetic_nb.memory._layer_functions import built_in
from noetic_nb.models._client import ModelResponse
from noetic_nb.regulator import Regulator, decisions, events
from noetic_nb.regulator._settings import Settings
from noetic_nb.regulator._state import Person
from noetic_nb.regulator.events import accepted_text
from noetic_nb.sync import awaited

LAYER_ID: Final = "regulation"
SLOT: Final = 1_000  # last in every hook, so that it only sees data that all other layers let pass
BUDGET: Final = {"min": 0, "max": 600}  # the prelude is a header and at most three corrections


@dataclass(frozen=True, slots=True)
class RegulatedReply:
    """A final response as a grader sees it."""

    text: str
    response: ModelResponse
    thread_id: str
    query: str

    def __str__(self) -> str:
        return self.text


Grader = Callable[[RegulatedReply], "float | Awaitable[float | None] | None"]
"""Grades a reply from 0 to 1; None gives no grade."""


RegulatorFactory = Callable[[str], Regulator]  # makes the regulator of a resource from its id


@built_in
@explained(regulator="Pass one: regulation(nn.Regulator.for_user('ann')).")
def regulation(
    regulator: Regulator | RegulatorFactory, *, grader: Grader | None = None, id: str = LAYER_ID, slot: float = SLOT
) -> MemoryLayer:
    """Make the layer that feeds a regulator and stops the turn when it breaks the circuit.

    Parameters
    ----------
    regulator : Regulator or callable
        The template of one user, or ``factory(resource_id)``, which makes one for each, such as `Regulator.for_user`.
        The factory is called once per resource, with the thread's id if there is none. A template provides the settings
        and the initial memory of its user.
    grader : callable, optional
        ``grader(reply)`` grades a final response from 0 to 1; sync or async. Without it, quality comes from
        ``harness.feedback``.

    Returns
    -------
    MemoryLayer
        The first recall of an execution is its ``TurnStart``; each model call a ``Cost`` and its ``Token`` events; each
        allowed tool call a ``ToolCall`` and a ``ToolResult``; the final response a ``TurnComplete``. Model and tool
        calls of children count for the turn. The person's corrections about the current topic are recalled before the
        model answers. A circuit break stops the turn with its suggestion, and every later turn of the thread before its
        model call, until ``harness.reset_task``.

    Raises
    ------
    NoeticConfigError
        ``INVALID_REGULATION``. At the start of a turn, ``REGULATOR_OF_ANOTHER``: the thread has a ``resource_id``, and
        the regulator, or the stored state of the resource, has another ``user_id``.

    Examples
    --------
    >>> regulation(Regulator.recommended("ann").with_token_cap(2_000)).id
    'regulation'
    >>> regulation(lambda resource_id: Regulator.for_user(resource_id).with_cost_cap(2_000)).scope
    'resource'
    """
    if not isinstance(regulator, Regulator) and not callable(regulator):
        raise _no_regulator("regulation needs a regulator, or a function that creates one for a resource.", regulator)
    if not isinstance(regulator, Regulator):
        check_function(regulator, "regulator", "the id of a resource", code="INVALID_REGULATION")
    check_function(grader, "grader", "the reply", code="INVALID_REGULATION")
    layer = _Regulation(regulator, grader, id)
    return MemoryLayer(
        id=id,
        slot=slot,
        scope="resource",
        budget=BUDGET,
        hooks=MemoryHooks(
            init=layer.init,
            recall=layer.recall,
            store=layer.store,
            before_tool_call=layer.before_tool_call,
            on_tool_outcome=layer.on_tool_outcome,
            on_model_outcome=layer.on_model_outcome,
            on_feedback=layer.on_feedback,
            on_complete=layer.on_complete,
            on_edit=layer.on_edit,
            on_spawn=layer.on_spawn,
            dispose=layer.dispose,
        ),
    )


def is_regulation(layer: MemoryLayer) -> bool:
    return isinstance(getattr(layer.hooks.recall, "__self__", None), _Regulation)


def regulator_of(layer: MemoryLayer) -> Regulator | None:
    """Return the template of a `regulation` layer, or for a factory one for the user ``replay``; None for other layers."""
    owner = getattr(layer.hooks.recall, "__self__", None)
    if not isinstance(owner, _Regulation):
        return None
    return owner.given if isinstance(owner.given, Regulator) else _made(owner.given, "replay")


def factory_of(layer: MemoryLayer) -> RegulatorFactory | None:
    given = getattr(getattr(layer.hooks.recall, "__self__", None), "given", None)
    return None if isinstance(given, Regulator) else given


@dataclass(frozen=True, slots=True)
class _ForEach:
    """A factory whose regulators have a template's settings; the memory of the template's user goes to no other user."""

    template: Regulator

    def __call__(self, resource_id: str) -> Regulator:
        own = resource_id == self.template.user_id()
        return self.template.fork(person=None if own else Person(resource_id))


def for_each(template: Regulator) -> RegulatorFactory:
    """Return a factory that uses a template for every user: for replays, which evaluate its settings."""
    return _ForEach(template)


def _no_regulator(happened: str, given: Any) -> NoeticConfigError:
    return NoeticConfigError("INVALID_REGULATION", happened, given=given, hint="Use nn.Regulator.for_user('name').")


def _made(factory: RegulatorFactory, resource_id: str) -> Regulator:
    made = factory(resource_id)
    if not isinstance(made, Regulator):
        raise _no_regulator(f"The function of regulation created no regulator for {resource_id!r}.", made)
    return made


@dataclass(slots=True)
class _Execution:
    """The state of an execution that is a thread's current turn."""

    id: str
    started: bool = False
    query: str = ""


@dataclass(slots=True)
class _Home:
    """The live regulators of one storage: one per thread; the threads of a resource share a person."""

    storage: object  # a strong reference if it allows no weak one, so that its id is not reused
    templates: dict[str, Regulator] = field(default_factory=dict)
    tasks: dict[tuple[str, str], Regulator] = field(default_factory=dict)
    people: dict[str, Person] = field(default_factory=dict)
    latched: dict[str, Stop] = field(default_factory=dict)
    executions: dict[str, _Execution] = field(default_factory=dict)


@dataclass(slots=True)
class _Regulation:
    """The hooks and their shared state: agents with equal thread names may share a list of layers."""

    given: Regulator | RegulatorFactory
    grader: Grader | None
    layer_id: str
    homes: dict[int, _Home] = field(default_factory=dict)
    known_thresholds: tuple[Settings, FrozenDict] | None = None

    def home(self, ctx: ExecutionContext) -> _Home:
        """Return the data that lives as long as an execution's storage."""
        key = id(ctx.home)
        found = self.homes.get(key)
        if found is None:
            found = self.homes[key] = _Home(None)
            try:
                weakref.finalize(ctx.home, self.homes.pop, key, None)
            except TypeError:  # it allows no weak reference
                found.storage = ctx.home
        return found

    def thresholds(self, regulator: Regulator) -> FrozenDict:
        """Return the numbers in force, as one object until they change, because there is an event per decision."""
        if self.known_thresholds is None or self.known_thresholds[0] is not regulator.settings:
            self.known_thresholds = regulator.settings, freeze(regulator.thresholds)
        return self.known_thresholds[1]

    def template(self, ctx: ExecutionContext) -> Regulator:
        """Return the initial regulator of a resource; raises an error if it is another user's."""
        if isinstance(self.given, Regulator):
            self.check_owner(ctx, self.given.user_id(), "This regulator")
            return self.given
        key = resolve_scope_key("resource", ctx)
        found = self.home(ctx).templates.get(key)
        if found is None:
            if ctx.resource_id is None and isinstance(self.given, _ForEach):
                found = self.given.template.fork()
            else:
                found = _made(self.given, key)
        # Checked each time, because a thread without a resource may have had this name.
        self.check_owner(ctx, found.user_id(), "The regulator that the function made")
        self.home(ctx).templates[key] = found
        return found

    def check_owner(self, ctx: ExecutionContext, user_id: str, subject: str) -> None:
        """Refuse another user's memory; a thread without a resource accepts any."""
        if ctx.resource_id is None or ctx.resource_id == user_id:
            return
        raise NoeticConfigError(
            "REGULATOR_OF_ANOTHER",
            f"{subject} is of the user {user_id!r}, whose corrections are not for the resource {ctx.resource_id!r}.",
            given=f"user_id={user_id!r}, resource_id={ctx.resource_id!r}, thread_id={ctx.thread_id!r}",
            hint="Give each user a regulator: nn.regulation(nn.Regulator.for_user). What is stored for a resource is replaced "
            f"by harness.memory(thread_id).edit({self.layer_id!r}, ...): None, or a state with the right user_id.",
        )

    def task(self, ctx: ExecutionContext) -> Regulator:
        """Return the regulator of a thread, forked from the template if there is none yet."""
        # By thread: counts belong to a task, and a task is a thread of one person.
        key = resolve_scope_key("resource", ctx)
        found = self.home(ctx).tasks.get((ctx.thread_id, key))
        if found is None:
            known = self.home(ctx).people.get(key)
            if known is not None:  # from a thread without a resource that has this name
                self.check_owner(ctx, known.user_id, "What is known here")
            found = self.template(ctx).fork(person=known)
            # The first thread of a person makes the record that all later ones share.
            self.home(ctx).people.setdefault(key, found.person)
            self.home(ctx).tasks[ctx.thread_id, key] = found
        return found

    async def load_person(self, ctx: ExecutionContext, stored: Any) -> None:
        """Load the memory of a person, once per process."""
        key = resolve_scope_key("resource", ctx)
        if key in self.home(ctx).people or stored is None:
            return
        self.home(ctx).people[key] = self.read_person(ctx, stored)

    def read_person(self, ctx: ExecutionContext, stored: Any) -> Person:
        """Return the person of a stored state; raises an error if it is another user's."""
        person = Regulator.from_json(compact_json(stored)).person
        self.check_owner(ctx, person.user_id, "What is stored")
        return person

    async def init(self, p: params.InitParams) -> Mapping[str, Any]:
        await self.load_person(p.ctx, await p.storage.get("state"))
        self.home(p.ctx).executions[p.ctx.thread_id] = _Execution(p.ctx.execution_id)
        return {"state": _snapshot(self.task(p.ctx))}

    def recall(self, p: params.RecallParams) -> Mapping[str, Any] | None:
        run = self.home(p.ctx).executions.setdefault(p.ctx.thread_id, _Execution(p.ctx.execution_id))
        regulator = self.task(p.ctx)
        stop = None
        # Later recalls in a turn, also by a child, follow rounds of tools and do not begin a turn.
        if not run.started:
            run.started, run.query = True, p.query
            self.feed(p.ctx, regulator, events.TurnStart(accepted_text(p.query)))
            stop = self.decide(p.ctx, regulator, "turn_start", held=self.home(p.ctx).latched.get(p.ctx.thread_id))
        # Corrections come from the person, who does not talk to a child.
        prelude = regulator.corrections_prelude() if run.id == p.ctx.execution_id else None
        if prelude is None:
            return None if stop is None else {"items": [], "stop": stop}
        return {"items": [input_message(prelude, "developer", ids=p.ctx.ids)], "stop": stop}

    def on_model_outcome(self, p: params.ModelOutcome) -> None:
        regulator = self.task(p.ctx)
        # In chronological order: tokens arrive before the cost of the call.
        for index, token in enumerate(p.logprobs):
            self.feed(p.ctx, regulator, events.Token(accepted_text(token.token), token.logprob, index), record=False)
        usage = p.usage
        cost = events.Cost(
            # The regulator's counters have 32 bits.
            min(max(0, usage.input_tokens), 2**32 - 1),
            min(usage.output_tokens, 2**32 - 1),
            max(0, round(p.duration_ms)),
            p.model,
            # None if the price is unknown; a custom client may return any value.
            p.cost if p.cost is not None and 0 <= p.cost < math.inf else None,
        )
        self.feed(p.ctx, regulator, cost)

    def before_tool_call(self, p: params.BeforeToolCallParams) -> Mapping[str, Any] | None:
        if p.so_far.action is not SteeringAction.ALLOW:
            return None  # it will not be made
        regulator = self.task(p.ctx)
        self.feed(
            p.ctx, regulator, events.ToolCall(accepted_text(p.tool_name), accepted_text(compact_json(p.tool_args)))
        )
        stop = self.decide(p.ctx, regulator, "tool_call")
        if stop is None:
            return None
        return {"decision": SteeringDecision(SteeringAction.DENY, stop.suggestion), "stop": stop}

    def on_tool_outcome(self, p: params.ToolOutcome) -> None:
        error = None if p.error is None else accepted_text(p.error)
        output = None if p.output is None else accepted_text(p.output)
        result = events.ToolResult(accepted_text(p.name), p.success, max(0, round(p.duration_ms)), error, output)
        self.feed(p.ctx, self.task(p.ctx), result)

    async def store(self, p: params.StoreParams) -> Mapping[str, Any] | None:
        run = self.home(p.ctx).executions.setdefault(p.ctx.thread_id, _Execution(p.ctx.execution_id))
        # Not final: another model call follows, or the parent of this child continues.
        goes_on = any(item["type"] in ("function_call", "function_call_output") for item in (p.log or p.new_items)[-1:])
        if run.id != p.ctx.execution_id or goes_on:
            return None
        regulator = self.task(p.ctx)
        text = assistant_text(p.new_items)
        self.feed(p.ctx, regulator, events.TurnComplete(accepted_text(text)))
        stop = self.decide(p.ctx, regulator, "turn_complete")
        if self.grader is not None:
            try:
                grade = _checked(
                    await awaited(self.grader(RegulatedReply(text, p.response, p.ctx.thread_id, run.query)))
                )
            except Exception as exc:  # the reply has no grade; the decision above still holds
                p.ctx.diagnostic(self.layer_id, "grader", exc)
                grade = None
            if grade is not None:
                if p.ctx.sink is not None:
                    p.ctx.sink.emit(QualityGiven(p.ctx.where, p.ctx.clock.now_ms(), grade, "grader"))
                self.feed(p.ctx, regulator, events.QualityFeedback(grade))
                stop = self.decide(p.ctx, regulator, "quality_feedback") or stop
        return None if stop is None else {"stop": stop}

    async def on_feedback(self, p: params.Feedback) -> None:
        await self.load_person(p.ctx, await p.storage.get("state"))
        regulator = self.task(p.ctx)
        if p.kind == "reset_task":
            regulator.reset_task()
            self.home(p.ctx).latched.pop(p.ctx.thread_id, None)
            return
        if p.kind == "quality":
            self.feed(p.ctx, regulator, events.QualityFeedback(p.value))
        else:
            self.feed(p.ctx, regulator, events.UserCorrection(accepted_text(p.value), True))
        self.decide(p.ctx, regulator, p.kind, between_turns=True)
        await p.storage.set("state", _snapshot(regulator))  # no live execution may write it later

    def on_edit(self, ctx: ExecutionContext, state: Any) -> Callable[[], None]:
        """Replace the memory of a person's regulators, in every thread, by an edited state."""
        edited = None if state is None else self.read_person(ctx, state)
        known = self.home(ctx).people.get(resolve_scope_key("resource", ctx))

        def take_over() -> None:
            if known is not None:  # otherwise the first turn loads the new state
                # In place, because the regulators of all threads of the person hold this object.
                known.replace(self.template(ctx).fork(person=edited).person)

        return take_over

    def on_spawn(self, p: params.SpawnParams) -> Mapping[str, Any]:
        # A child's layer may have its own regulator, and its `init` is not called if the parent has a layer with this id.
        self.template(p.child_ctx)
        return {"child_state": p.parent_state}

    def on_complete(self, p: params.CompleteParams) -> Mapping[str, Any]:
        return {"state": _snapshot(self.task(p.ctx))}

    def dispose(self, p: params.DisposeParams) -> None:
        run = self.home(p.ctx).executions.get(p.ctx.thread_id)
        if run is not None and run.id == p.ctx.execution_id:
            del self.home(p.ctx).executions[p.ctx.thread_id]

    def feed(self, ctx: ExecutionContext, regulator: Regulator, event: events.Event, *, record: bool = True) -> None:
        """Feed one event; tokens are not recorded individually, because the model call has them."""
        regulator.on_event(event)
        if ctx.sink is not None and record:
            ctx.sink.emit(RegulatorSaw(ctx.where, ctx.clock.now_ms(), self.layer_id, events.to_dict(event)))

    def decide(
        self,
        ctx: ExecutionContext,
        regulator: Regulator,
        at: str,
        *,
        held: Stop | None = None,
        between_turns: bool = False,
    ) -> Stop | None:
        """Let the regulator decide; a break, or one `held` from an earlier turn, is a stop until the task is reset."""
        decision = regulator.decide()
        stop = held
        if stop is None and isinstance(decision, decisions.CircuitBreak):
            stop = Stop(decisions.to_dict(decision), decision.suggestion)
            self.home(ctx).latched[ctx.thread_id] = stop
        if ctx.sink is not None:
            ctx.sink.emit(
                RegulatorDecided(
                    ctx.where,
                    ctx.clock.now_ms(),
                    self.layer_id,
                    at,
                    decisions.to_dict(decision) if stop is None else stop.decision,
                    None if stop is None else stop.suggestion,
                    regulator.confidence(),
                    regulator.total_tokens_out(),
                    regulator.cost_cap_tokens(),
                    stop is not None and not between_turns,
                    self.thresholds(regulator),
                )
            )
        return stop


def _checked(grade: Any) -> float | None:
    """Return a grade as a number; raises `TypeError` for text, even that of a number."""
    if grade is None:
        return None
    if isinstance(grade, bool) or not isinstance(grade, Real) or not math.isfinite(grade):
        raise TypeError(
            f"A grader must return a finite number from 0 to 1, or None, not {type(grade).__name__}: {grade!r:.80}."
        )
    return float(grade)


def _snapshot(regulator: Regulator) -> Any:
    """Return the memory of the person as JSON data."""
    return json.loads(regulator.export_json())
