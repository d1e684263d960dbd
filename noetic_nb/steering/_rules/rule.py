"""One steering rule: when it applies, and how it decides. A rule never changes; a rule book replaces it by a new one.

Its fields are flat, as in a rule file, and at most one of `predicate`, `when` and `sequence` is set. Code that depends
on the form matches `SteeringRule.decider`, a union of the forms, instead of testing fields for None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_camel

from noetic_nb._core.cards import Card, with_card
from noetic_nb._core.names import nearest
from noetic_nb._core.record_type import RecordType
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items._origins import trusted_source

Point: TypeAlias = Literal["before_tool_call", "after_model_call"]
"""The two enforcement points."""

RuleForm: TypeAlias = Literal["python", "cel", "sequence", "judge", "none"]
"""The first decider of a rule: the tag of `Decider`."""

# Cheap and quick; see docs/decisions/limits.md, "Steering".
DEFAULT_JUDGE_MODEL: Final = "openai/gpt-4o-mini"

_POINTS: Final = {
    "before_tool_call": "before_tool_call",
    "beforeToolCall": "before_tool_call",
    "after_model_call": "after_model_call",
    "afterModelCall": "after_model_call",
}


@with_card
class _Frozen(BaseModel, metaclass=RecordType):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        arbitrary_types_allowed=True,
    )


class LLMEval(_Frozen):
    """A judge: a model that receives the call or response and answers ALLOW, DENY or GUIDE."""

    form: ClassVar[RuleForm] = "judge"

    mode: Literal["sync", "async"]
    """``sync`` waits for the verdict; ``async`` lets the call pass and delivers the verdict with a later prompt."""
    prompt: str = Field(min_length=1)
    """The question for the judge, in plain words."""
    model: str = Field(default=DEFAULT_JUDGE_MODEL, min_length=1)
    """The name of the judging model."""


# A rule about a tool without a name would silently guard nothing.
ToolName: TypeAlias = Annotated[str, Field(min_length=1)]


class SequenceRule(_Frozen):
    """The calls that a rule allows after earlier ones: by other tools, by number of calls, or by an argument's author."""

    form: ClassVar[RuleForm] = "sequence"

    kind: Literal["never_after", "only_after", "at_most", "only_from_user"]
    """The kind of condition on earlier calls."""
    others: tuple[ToolName, ...] = ()
    """The tools that must, or must not, have been called before."""
    count: int | None = Field(default=None, ge=0, strict=True)
    """For ``at_most``: the number of allowed calls."""
    args: tuple[ToolName, ...] = ()
    """For ``only_from_user``: the arguments, such as ``recipient``, ``invite.email`` or ``body.links``; empty for all."""
    trust: tuple[ToolName, ...] = ()
    """For ``only_from_user``: other trusted authors: a tool, ``tool.field``, ``tool.field[key=value]``, ``system``,
    ``layer:id``."""

    @model_validator(mode="after")
    def _others_or_count(self) -> SequenceRule:
        if self.kind == "only_from_user":
            if self.count is not None or self.others:
                raise ValueError("`only_from_user` takes arguments and trusted sources, no other tools and no count")
            for entry in self.trust:
                trusted_source(entry)
            for path in self.args:
                if not all(part.strip() for part in path.split(".")):
                    raise ValueError(f"write an argument as 'to', 'invite.email' or 'body.links', not {path!r}")
            return self
        if self.args or self.trust:
            raise ValueError("`args` and `trust` belong to `only_from_user`")
        if self.kind == "at_most" and (self.count is None or self.others):
            raise ValueError("`at_most` takes a count and no other tools")
        if self.kind != "at_most" and (self.count is not None or not self.others):
            raise ValueError(f"`{self.kind}` names others and has no count")
        return self


@dataclass(frozen=True, slots=True)
class PythonPredicate:
    """A function of the hook's parameters that returns a decision, or None for no decision."""

    form: ClassVar[RuleForm] = "python"

    function: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class CelCondition:
    """A CEL expression that is true or false."""

    form: ClassVar[RuleForm] = "cel"

    text: str


Decider: TypeAlias = PythonPredicate | CelCondition | SequenceRule | LLMEval
"""The part of a rule that is evaluated first; each has its `form`."""


class SteeringRule(_Frozen):
    """A rule: one decider, and optionally a judge.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RULE``; for a condition also ``RULE_DOES_NOT_COMPILE`` and ``MISSING_PACKAGE``.

    Examples
    --------
    >>> SteeringRule(id="quiet", applies_to="after_model_call", predicate=lambda response: None).form
    'python'
    """

    id: str = Field(min_length=1)
    """Unique in its rule book."""
    name: str | None = None
    """For display."""
    applies_to: tuple[Point, ...] = Field(min_length=1)
    """When it is evaluated."""
    predicate: Callable[[Any], Any] | None = None
    """A function of the hook's parameters that returns a decision, or None for no decision."""
    when: str | None = Field(default=None, min_length=1)
    """A condition in CEL: if it is true, `action` is taken, or the judge is called if there is one."""
    sequence: SequenceRule | None = None
    """The condition on earlier calls: a call that violates it leads to `action`."""
    action: Literal["deny", "guide", "ask", "allow"] | None = None
    """The action of a condition or a sequence rule; ``"deny"`` by default."""
    guidance: str | None = None
    """Text for the model; placeholders such as ``{tool.args.path}`` are filled in."""
    llm_eval: LLMEval | None = None
    """The judge: decides alone, if a predicate returns no decision, or if a condition is true."""
    tools: tuple[ToolName, ...] | None = None
    """Before a call: the tools it applies to; None means every tool."""
    history: bool = False
    """Whether the predicate reads ``call.history``."""
    isolate: Literal["thread", "process"] | None = None
    """Where it runs so that a hanging rule is denied in time: a predicate in a thread, a condition in a process."""
    source: str | None = None
    """The source of the predicate, for display."""
    enabled: bool = True
    """Whether it is evaluated."""

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as exc:
            first = exc.errors()[0]  # The first fault is enough, because faults are corrected one at a time
            where = ".".join(map(str, first["loc"])) or "rule"
            near = nearest(str(first["loc"][-1]), SteeringRule.model_fields) if first["loc"] else None
            unknown = first["type"] == "extra_forbidden"
            raise NoeticConfigError(
                "INVALID_RULE",
                f"{where}: {first['msg']}",
                given=first.get("input"),
                hint=f"Did you mean {near!r}?"
                if unknown and near is not None
                else f"The fields of a rule are {', '.join(SteeringRule.model_fields)}.",
                field=where,
                rule_id=data.get("id"),
            ) from exc

    def _card(self) -> Card:
        facts: list[tuple[str, Any]] = [("where", tuple([point.replace("_", " ") for point in self.applies_to]))]
        facts += [] if self.tools is None else [("tools", self.tools)]
        match self.decider:
            case PythonPredicate(function):
                facts.append(("predicate", function))
            case CelCondition(text):
                facts.append(("when", text))
            case SequenceRule() as sequence:
                facts.append(("sequence", sequence))
        judge = [] if self.llm_eval is None else [("judge", self.llm_eval.prompt), ("model", self.llm_eval.model)]
        said = [(name, getattr(self, name)) for name in ("action", "guidance", "isolate")]
        facts += [*judge, *[(name, value) for name, value in said if value is not None]]
        facts += [] if self.enabled else [("enabled", False)]
        return Card("SteeringRule", self.id, facts)

    @field_validator("applies_to", mode="before")
    @classmethod
    def _points(cls, value: object) -> object:
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, Iterable):
            return value
        return tuple(_POINTS.get(name, name) if isinstance(name, str) else name for name in names)

    # A string is iterable: "pay" would otherwise become the tools "p", "a" and "y".
    @field_validator("tools", mode="before")
    @classmethod
    def _tools(cls, value: object) -> object:
        if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
            value = tuple(value)
        if value == ():
            raise ValueError("an empty `tools` guards nothing; omit `tools` to guard every tool")
        return (value,) if isinstance(value, str) else value

    @field_validator("isolate", mode="before")
    @classmethod
    def _isolated(cls, value: object) -> object:
        return None if value is False else value  # `isolate=False` means the default

    @model_validator(mode="before")
    @classmethod
    def _isolate_as_fits(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and data.get("isolate") is True:
            return {**data, "isolate": "process" if data.get("when") is not None else "thread"}
        return data

    @model_validator(mode="after")
    def _one_form(self) -> SteeringRule:
        deciders = [name for name in ("predicate", "when", "sequence") if getattr(self, name) is not None]
        if len(deciders) > 1:
            raise ValueError(f"a rule has exactly one condition, but this one has {' and '.join(deciders)}")
        if self.action is not None or self.guidance is not None:
            if self.form not in ("cel", "sequence"):
                raise ValueError("`action` and `guidance` belong to a condition (`when`) or a `sequence`")
            if self.llm_eval is not None:
                raise ValueError("the judge decides what follows from the condition; leave `action` and `guidance` out")
        if self.form == "sequence":
            if self.tools is None or self.applies_to != ("before_tool_call",):
                raise ValueError("a `sequence` is about `tools`, before they are called")
            if self.llm_eval is not None:
                raise ValueError("a `sequence` has no judge")
        if self.isolate == "process" and self.form != "cel":
            raise ValueError("only a condition can run in a process; use isolate='thread' for a predicate")
        if self.isolate == "thread" and self.form != "python":
            raise ValueError("a condition holds the interpreter, so a thread does not help; use isolate='process'")
        return self

    @property
    def decider(self) -> Decider | None:
        """The part that is evaluated first, to be matched by class; None if there is none and the rule never decides.

        Examples
        --------
        >>> rule = SteeringRule(id="large", applies_to="before_tool_call", when="tool.args.amount > 100")
        >>> match rule.decider:
        ...     case CelCondition(text):
        ...         print(text)
        tool.args.amount > 100
        """
        # Not cached: `model_copy` changes the fields, and would copy a cached decider as well.
        if self.predicate is not None:
            return PythonPredicate(self.predicate)
        if self.when is not None:
            return CelCondition(self.when)
        return self.sequence or self.llm_eval

    @property
    def form(self) -> RuleForm:
        """The form of the rule: ``"python"``, ``"cel"``, ``"sequence"``, ``"judge"`` or ``"none"``."""
        decider = self.decider
        return "none" if decider is None else decider.form


def as_rule(value: SteeringRule | Mapping[str, Any]) -> SteeringRule:
    """Return a rule given as a record or as a mapping; raises `NoeticConfigError` ``INVALID_RULE``."""
    given: object = value
    if isinstance(given, SteeringRule):
        return given
    if isinstance(given, Mapping) and all(isinstance(key, str) for key in given):
        return SteeringRule(**given)
    hint = "Add a function with rules.rule(f, on='before_tool_call'), a condition with rules.when('...', id='...')."
    raise NoeticConfigError("INVALID_RULE", "A rule must be a SteeringRule or a mapping.", given=given, hint=hint)
