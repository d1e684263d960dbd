"""Spans of OpenInference that check or grade an agent: guardrails and evaluators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from noetic_nb.interop._spans.calls import ModelUse
from noetic_nb.interop._spans.openinference import nested
from noetic_nb.interop._spans.span_messages import parsed
from noetic_nb.interop._spans.span_record import Span
from noetic_nb.items._messages.message import money

# The conventions name the kind of span and no field for its verdict: these are the names in use.
_PASSED: Final = ("passed", "pass", "allowed", "valid", "is_safe", "safe")
_STOPPED: Final = ("blocked", "flagged", "triggered", "tripwire_triggered", "rejected", "denied", "failed")
_REASONS: Final = ("reason", "explanation", "message", "detail", "details", "guidance", "label")
_GOOD_WORDS: Final = ("pass", "allow", "ok", "safe", "true", "valid")
_BAD_WORDS: Final = ("fail", "block", "den", "flag", "reject", "unsafe", "false", "invalid")


@dataclass(slots=True)
class CheckUse:
    """A guardrail or an evaluator at work, with the model calls that it made."""

    span: Span
    calls: list[ModelUse] = field(default_factory=list)

    @property
    def is_guardrail(self) -> bool:
        """Whether it decides on an action, else it grades an answer."""
        return self.span.attributes.get("openinference.span.kind") == "GUARDRAIL"

    def _values(self) -> Iterator[tuple[str, Any]]:
        about = self.span.attributes
        for name, value in about.items():
            yield name.rpartition(".")[2], value
        for name in ("metadata", "output.value"):
            found = parsed(about.get(name))
            if isinstance(found, Mapping):
                yield from ((str(key), value) for key, value in found.items())

    def is_passed(self) -> bool | None:
        """Return whether a guardrail let the action pass, None where its span does not say."""
        for name, value in self._values():
            if isinstance(value, bool) and name in (*_PASSED, *_STOPPED):
                return value if name in _PASSED else not value
        said = str(self.span.attributes.get("output.value", "")).strip().lower()
        if said.startswith(_BAD_WORDS):
            return False
        return True if said.startswith(_GOOD_WORDS) else None

    def reason(self) -> str | None:
        """Return the words of a verdict."""
        for name, value in self._values():
            if name in _REASONS and isinstance(value, str) and value:
                return value
        return self.span.text("output.value")

    def scores(self) -> list[tuple[str, float]]:
        """Return the grades of an evaluator by name; a truth value is 1 or 0."""
        found: list[tuple[str, float]] = []
        for each in nested(self.span, "evaluations.") or ():
            score = money(each.get("evaluation.score"))
            if score is not None:
                found.append((str(each.get("evaluation.name") or self.span.name), score))
        if found:
            return found
        for name, value in self._values():
            score = float(value) if isinstance(value, bool) and name in _PASSED else money(value)
            if score is not None and name in ("score", *_PASSED):
                return [(self.span.name, score)]
        return []
