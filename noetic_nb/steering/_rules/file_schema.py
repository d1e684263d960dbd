"""Rules as data: the schema of a rule file, and a rule as readable text.

Loading executes no code. A Python rule is a name; the caller that loads the file binds it to a function.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from noetic_nb.steering._rules.rule import DEFAULT_JUDGE_MODEL, Point, PythonPredicate, SequenceRule, SteeringRule


def rule_data(rule: SteeringRule) -> dict[str, Any]:
    """Return a rule as plain data, in the keys of a rule file; a predicate is only named."""
    data: dict[str, Any] = {"id": rule.id}
    if rule.name is not None:
        data["name"] = rule.name
    data["on"] = list(rule.applies_to)
    if rule.tools is not None:
        data["tools"] = list(rule.tools)
    decider = rule.decider
    if isinstance(decider, PythonPredicate):
        data["python"] = rule.id
    for key in ("when", "action", "guidance", "isolate"):
        value = getattr(rule, key)
        if value is not None:
            data[key] = value
    if isinstance(decider, SequenceRule):
        if decider.kind == "only_from_user":
            data[decider.kind] = list(decider.args)
            if decider.trust:
                data["trust"] = list(decider.trust)
        else:
            data[decider.kind] = decider.count if decider.kind == "at_most" else list(decider.others)
    if rule.llm_eval is not None:
        data["judge"] = rule.llm_eval.model_dump()
    if rule.history:
        data["history"] = True
    if not rule.enabled:
        data["enabled"] = False
    return data


def rule_text(rule: SteeringRule) -> str:
    # A predicate without a text (typed at a prompt) is shown as data, by its name.
    if rule.source is not None:
        return rule.source
    return json.dumps(rule_data(rule), ensure_ascii=False, indent=2)


SCHEMA_ID: Final = "urn:noetic-nb:rules:1"

# A rule has at most one of these; the last four are the kinds of a sequence rule.
_DECIDERS: Final = ("when", "python", "never_after", "only_after", "at_most", "only_from_user")


class _Strict(BaseModel):
    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


class JudgeData(_Strict):
    """A model that judges."""

    prompt: str = Field(min_length=1)
    """What is judged, in plain words."""
    mode: Literal["sync", "async"] = "sync"
    """Wait for the verdict, or deliver it with a later prompt."""
    model: str = Field(default=DEFAULT_JUDGE_MODEL, min_length=1)
    """Name of the model that judges."""


class RuleData(_Strict):
    """One rule; exactly one of `when`, a kind of sequence, `python` and `judge`, or `when` with `judge`.

    The kinds of a sequence are `never_after`, `only_after`, `at_most` and `only_from_user`.
    """

    id: str = Field(min_length=1)
    """Unique in the file."""
    name: str | None = None
    """For people."""
    on: list[Point] = Field(default=["before_tool_call"], min_length=1)
    """When it is evaluated."""
    tools: list[str] | None = Field(default=None, json_schema_extra={"minItems": 1})
    """The tools it applies to; every tool where it is left out."""
    when: str | None = Field(default=None, min_length=1)
    """A condition in CEL."""
    never_after: list[str] | None = Field(default=None, min_length=1)
    """The tools are never called after any of these."""
    only_after: list[str] | None = Field(default=None, min_length=1)
    """The tools are called only after all of these have succeeded."""
    at_most: int | None = Field(default=None, ge=0)
    """The tools together are called at most so often."""
    only_from_user: list[str] | None = None
    """The tools are called only with values of these arguments that the user wrote; an empty list means all arguments."""
    trust: list[str] | None = None
    """Who else may have written them: a tool, tool.field, system or layer:id."""
    python: str | None = Field(default=None, min_length=1)
    """Name of a function that is bound when the file is loaded."""
    action: Literal["deny", "guide", "ask", "allow"] | None = None
    """What a condition or a sequence rule leads to; deny where it is left out."""
    guidance: str | None = None
    """Text for the model; {tool.args.path} and the like are filled in."""
    judge: JudgeData | None = None
    """A model that judges."""
    isolate: Literal["thread", "process"] | None = None
    """Where it runs so that it can be abandoned."""
    history: bool = False
    """Whether a function reads the calls so far."""
    enabled: bool = True
    """Whether it is evaluated at all."""

    def fields(self) -> dict[str, Any]:
        """Return the fields of a `SteeringRule`, without the function."""
        kept = {"id", "name", "tools", "when", "action", "guidance", "isolate", "history", "enabled"}
        found: dict[str, Any] = self.model_dump(include=kept)
        found["applies_to"] = self.on
        deciders = {name: value for name in _DECIDERS if (value := getattr(self, name)) is not None}
        if len(deciders) > 1:
            raise ValueError(f"a rule has exactly one condition, but this one has {' and '.join(deciders)}")
        match deciders:
            case {"never_after": others} | {"only_after": others}:
                found["sequence"] = {"kind": next(iter(deciders)), "others": others}
            case {"only_from_user": args}:
                found["sequence"] = {"kind": "only_from_user", "args": args, "trust": self.trust or ()}
            case {"at_most": count}:
                found["sequence"] = {"kind": "at_most", "count": count}
            case {} if not deciders and self.judge is None:
                raise ValueError("it has no condition; give it `when`, `judge`, `python`, `at_most` or the like")
        if self.trust is not None and self.only_from_user is None:
            raise ValueError("`trust` belongs to `only_from_user`")
        if self.judge is not None:
            found["llm_eval"] = self.judge.model_dump()
        return found


class RuleFile(_Strict):
    """A rule file."""

    version: Literal[1]
    """Version of the format."""
    rules: list[RuleData]
    """The rules, in the order in which they are evaluated."""

    @staticmethod
    def data_of(rules: tuple[SteeringRule, ...]) -> dict[str, Any]:
        return {"version": 1, "rules": [rule_data(rule) for rule in rules]}


def rule_file_schema() -> dict[str, Any]:
    """Return the JSON Schema of rule files, as published beside the package.

    Examples
    --------
    >>> sorted(rule_file_schema()["properties"])
    ['rules', 'version']
    """
    schema = RuleFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **schema}
