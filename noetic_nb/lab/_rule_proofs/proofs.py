"""Claims about all calls that rules let pass, and calls on which two rule books differ, decided by a solver."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from noetic_nb._core.cards import with_card
from noetic_nb._core.names import nearest
from noetic_nb._core.optional_packages import optional_package
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import thaw
from noetic_nb.items._json_text import compact_json
from noetic_nb.lab._recorded_calls import call_outside, schemas_of
from noetic_nb.lab._rule_trial import TrialResult, as_snapshot, try_rules
from noetic_nb.memory._steering_decision import SteeringAction, SteeringDecision
from noetic_nb.memory.params import BeforeToolCallParams
from noetic_nb.steering import SteeringRule
from noetic_nb.steering._evaluation.evaluate import Policy, RuleSnapshot
from noetic_nb.steering._evaluation.rule_reading import unknown_targets

# The limit for all queries about one tool; most take about 50 ms.
TIMEOUT_MS: Final = 10_000
# The solver rarely finds a call that the rules judge differently; the next call usually differs.
TRIES: Final = 4

ProofStatus: TypeAlias = Literal["proved", "counterexample", "undecided"]


@with_card
@dataclass(frozen=True, slots=True)
class Proof:
    """The answer to a claim about rules: its status, the call that refutes it, and the reason in words."""

    status: ProofStatus
    call: BeforeToolCallParams | None
    """As rules see it, with earlier calls and origins; None unless the status is ``"counterexample"``."""
    because: str


@with_card
@dataclass(frozen=True, slots=True)
class Difference:
    """A call that one rule book lets pass and another does not, and the decision of each."""

    call: BeforeToolCallParams
    old: SteeringDecision
    new: SteeringDecision


def _modules() -> tuple[Any, Any, Any, Any]:
    with optional_package("Proofs about rules need the package z3-solver.", "pip install 'noetic_nb[prove]'"):
        z3: Any = importlib.import_module("z3")
    from noetic_nb.lab._rule_proofs import formulas, symbols, witnesses

    return z3, symbols, formulas, witnesses


class _Question:
    """The calls of one tool, as formulas."""

    def __init__(self, tool: str, schema: Any) -> None:
        self._since = time.monotonic()
        self._z3, symbols, formulas, self._witnesses = _modules()
        self.tool, self.schema = tool, schema if isinstance(schema, Mapping) else {}
        self.world = symbols.World({**self.schema.get("definitions", {}), **self.schema.get("$defs", {})})
        args = {"type": "object", **self.schema}
        (self._args,) = [option.payload for option in self.world.value(args, "args")]
        self.reader = formulas.Reader(self.world, tool, self._args, self.schema)

    def blocked(self, rules: RuleSnapshot) -> dict[str, Any]:
        return {rule.id: self.reader.blocked(rule) for rule in rules.applicable("before_tool_call", self.tool)}

    def broken(self, truth: Any) -> Any:
        """Return when a claim is violated: it is false, or cannot be evaluated."""
        return self._z3.Not(truth.true)

    def core(self, wanted: Any, unless: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        """Tell whether a call satisfies `wanted` unblocked: "sat", "unsat" with the rules that block it, or "unknown"."""
        solver = self._solver(wanted)
        for name, blocked in unless.items():
            solver.assert_and_track(self._z3.Not(blocked), name)
        found = str(solver.check())
        return found, tuple(map(str, solver.unsat_core())) if found == "unsat" else ()

    def _solver(self, *wanted: Any) -> Any:
        solver = self._z3.Solver()
        solver.set("timeout", max(1, round(TIMEOUT_MS - 1_000 * (time.monotonic() - self._since))))
        solver.add(*self.world.facts, *wanted)
        return solver

    def calls(self, wanted: Any) -> Iterator[BeforeToolCallParams]:
        """Yield some calls that satisfy `wanted`, the most readable first."""
        for level in self.world.levels():
            solver = self._solver(wanted, *level)
            for _ in range(TRIES):
                if solver.check() != self._z3.sat:
                    break
                model = solver.model()
                try:
                    call = self._witnesses.call_of(self.world, model, self.tool, self.schema, self._args)
                except self._witnesses.NoWitness:
                    call = None
                if call is not None and self._fits(call):
                    yield call
                values = [each() for each in model.decls() if each.arity() == 0 and each.range() != self._z3.BoolSort()]
                solver.add(self._z3.Or(*[each != model.eval(each, model_completion=True) for each in values]))

    def _fits(self, call: BeforeToolCallParams) -> bool:
        import jsonschema

        found: bool = jsonschema.Draft202012Validator(self.schema).is_valid(thaw(call.tool_args))
        return found


def _decided(rules: RuleSnapshot, call: BeforeToolCallParams) -> TrialResult:
    return try_rules(rules, [call_outside(call)], policy=Policy())[0]


def _is_made(result: TrialResult) -> bool:
    return result.decision.action is SteeringAction.ALLOW


def _known_tools(tools: Any) -> dict[str, Any]:
    known = schemas_of(tools)
    if not known:
        what = "A claim needs tool calls, but there are no tools."
        raise NoeticConfigError("INVALID_TOOL", what, given=tools, hint="Pass the agent's tools: tools=[send_money].")
    return known


def prove(rules: Any, claim: str, *, tools: Any) -> Proof:
    """Prove that a claim is true of every call that rules let pass, or find a counterexample.

    Parameters
    ----------
    rules : RuleBook or iterable of rules
        Conditions and sentences are read; other rules may do anything.
    claim : str
        A condition in CEL over ``tool`` and ``origin``.
    tools : iterable of callable, Tool, ToolSpec or str, or mapping of str to JSON Schema
        The agent's tools. Arguments that are not required may be missing.

    Returns
    -------
    Proof
        ``status`` is ``"proved"``, ``"counterexample"`` or ``"undecided"``; ``because`` names the rules that block all
        other calls, the fault of the counterexample, or the unreadable part. A call that needs approval does not pass.
        Each value is assumed to have one author.

    Raises
    ------
    NoeticConfigError
        ``MISSING_PACKAGE`` without the extra ``prove``, ``RULE_DOES_NOT_COMPILE``, ``INVALID_RULE``, ``INVALID_TOOL``;
        ``UNKNOWN_TOOL`` or ``UNKNOWN_ARGUMENT`` if the claim misspells a tool or an argument.

    References
    ----------
    .. [1] docs/behaviour/proofs.md.

    Examples
    --------
    >>> from noetic_nb.steering import RuleBook
    >>> rules = RuleBook()
    >>> _ = rules.only_from_user("send_money", "recipient")
    >>> def send_money(recipient: str, amount: float) -> str: ...
    >>> prove(rules, 'origin(tool.args.recipient) == "user"', tools=[send_money]).status
    'proved'
    """
    _modules()
    snapshot, wanted = as_snapshot(rules), as_snapshot([_as_rule(claim)])
    known = _known_tools(tools)
    names = [*known, *[name for schema in known.values() for name in (schema or {}).get("properties", ())]]
    for target in unknown_targets(wanted, known):
        # A claim about a tool that the agent lacks is true, but for a misspelt tool that would be misleading.
        if nearest(target.name, names):
            what = f"The claim names a tool or an argument that none of the tools has. {target.why}"
            raise NoeticConfigError(target.code.upper(), what, given=target.name, hint=target.fix)
    undecided: list[str] = []
    keep: set[str] = set()
    for tool, schema in known.items():
        answer = _about(tool, schema, snapshot, wanted, claim)
        if answer.status == "counterexample":
            return answer
        if answer.status == "undecided":
            undecided.append(answer.because)
        keep.update(answer.because.split("\0"))
    if undecided:
        return Proof("undecided", None, "; ".join(dict.fromkeys(undecided)))
    kept = [rule.id for rule in snapshot if rule.id in keep]
    return Proof("proved", None, f"kept by {', '.join(kept)}" if kept else "it is true of every call")


def _as_rule(claim: Any) -> SteeringRule:
    if not isinstance(claim, str):
        hint = """Write 'origin(tool.args.x) == "user"'."""
        raise NoeticConfigError("INVALID_RULE", "A claim is a text in CEL.", given=claim, hint=hint)
    return SteeringRule(id="claim", applies_to="before_tool_call", when=claim)


def _about(tool: str, schema: Any, rules: RuleSnapshot, wanted: RuleSnapshot, claim: str) -> Proof:
    """Return the answer for one tool; a proof lists the rules that it needs."""
    question = _Question(tool, schema)
    blocked = question.blocked(rules)
    outside = tuple(dict.fromkeys(question.reader.outside))
    truth = question.reader.condition(claim)
    unread = [f"the claim has {what}" for what in question.reader.outside[len(outside) :]]
    broken = question.broken(truth)
    found, needed = question.core(broken, blocked)
    if found == "unsat":
        return Proof("proved", None, "\0".join(needed))
    if outside or unread:
        return Proof("undecided", None, "; ".join((*outside, *unread)))
    seen = False
    for call in question.calls(question.reader.passing(broken, blocked)):
        seen = True
        verdict = _decided(wanted, call)
        is_true = verdict.error is None and not _is_made(verdict)
        if _is_made(_decided(rules, call)) and not is_true:
            fault = "false" if verdict.error is None else f"not evaluated ({verdict.error.partition(': ')[2]})"
            return Proof("counterexample", call, f"the rules let {_shown(call)} pass, and the claim is {fault}")
    return Proof("undecided", None, _unknown(tool, seen))


def _shown(call: BeforeToolCallParams) -> str:
    args = [f"{name}={compact_json(thaw(value))} from {call.origin(value)}" for name, value in call.tool_args.items()]
    past = [f"{before.name} ({before.status})" for before in call.history]
    return f"{call.tool_name}({', '.join(args)})" + (f" after {', '.join(past)}" if past else "")


def _unknown(tool: str, seen: bool) -> str:
    why = "the rules decide otherwise than the solver expects" if seen else "the solver finds no answer"
    return f"{why} for {tool}"


def difference(old: Any, new: Any, *, tools: Any) -> Difference | None:
    """Return a call that one rule book lets pass and the other does not; None if there is none.

    Parameters
    ----------
    old, new : RuleBook or iterable of rules
        As for `prove`.
    tools : iterable of callable, Tool, ToolSpec or str, or mapping of str to JSON Schema
        The agent's tools.

    Raises
    ------
    NoeticConfigError
        ``UNDECIDED`` if no difference is found and a rule could not be read; otherwise as for `prove`.

    References
    ----------
    .. [1] docs/behaviour/proofs.md.

    Examples
    --------
    >>> from noetic_nb.steering import RuleBook
    >>> old, new = RuleBook(), RuleBook()
    >>> _ = old.when("tool.args.amount > 100", id="large", tools="pay")
    >>> _ = new.when("tool.args.amount >= 100", id="large", tools="pay")
    >>> def pay(amount: int) -> str: ...
    >>> found = difference(old, new, tools=[pay])
    >>> found.call.tool_args["amount"], found.old.action.value, found.new.action.value
    (100, 'allow', 'deny')
    """
    _modules()
    books = as_snapshot(old), as_snapshot(new)
    undecided: list[str] = []
    for tool, schema in _known_tools(tools).items():
        question = _Question(tool, schema)
        both = [question.blocked(book) for book in books]
        wanted = question.reader.differs(*both)
        if question.core(wanted, {})[0] == "unsat":
            continue
        if question.reader.outside:
            undecided += question.reader.outside
            continue
        seen = False
        for call in question.calls(wanted):
            seen = True
            results = [_decided(book, call) for book in books]
            if _is_made(results[0]) is not _is_made(results[1]):
                return Difference(call, results[0].decision, results[1].decision)
        undecided.append(_unknown(tool, seen))
    if undecided:
        raise NoeticConfigError(
            "UNDECIDED",
            f"It is undecided whether the rules differ: {'; '.join(dict.fromkeys(undecided))}.",
            hint="Leave these rules out of both, or compare the books on recorded runs: lab.backtest(old, runs, candidate=new).",
        )
    return None
