"""The fields of an editor for each form of rule: content, label, and place in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from noetic_nb.errors import NoeticConfigError

Kind: TypeAlias = Literal["code", "text", "choice", "number", "names"]

_POINTS: Final = (
    ("before_tool_call", "before a tool call"),
    ("after_model_call", "after a model call"),
    ("before_tool_call,after_model_call", "both"),
)


@dataclass(frozen=True, slots=True)
class Field:
    """One field; `before` and `after` are the surrounding words of a sentence."""

    name: str
    label: str
    kind: Kind = "text"
    placeholder: str = ""
    options: tuple[tuple[str, str], ...] = ()
    suggest: Literal["", "tools", "args", "models"] = ""
    """Which names from the recorded runs to suggest."""
    before: str = ""
    after: str = ""
    is_sentence: bool = False

    def data(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in ("name", "label", "kind", "placeholder", "suggest")},
            "options": [list(option) for option in self.options],
            "before": self.before,
            "after": self.after,
            "sentence": self.is_sentence,
        }


_ON: Final = Field("on", "Evaluated", "choice", options=_POINTS)
_TOOLS: Final = Field("tools", "Tools", "names", "every tool", suggest="tools")
_ACTIONS: Final = tuple([(action, action) for action in ("deny", "guide", "ask", "allow")])
_GUIDANCE: Final = Field("guidance", "Guidance", placeholder="for the model; {tool.args.path} is filled in")
_OUTCOME: Final = (Field("action", "Action", "choice", options=_ACTIONS), _GUIDANCE)
# A sentence rule forbids; it never allows.
_SENTENCE_OUTCOME: Final = (Field("action", "Action", "choice", options=_ACTIONS[:3]), _GUIDANCE)
_MODES: Final = (("sync", "wait for the verdict"), ("async", "deliver it with a later prompt"))


def _part(name: str, label: str, kind: Kind = "names", **more: Any) -> Field:
    return Field(name, label, kind, is_sentence=True, **more)


def _tool(after: str) -> Field:
    return _part("tools", "Tools", placeholder="tool", suggest="tools", after=after)


_FIELDS: Final[dict[str, tuple[Field, ...]]] = {
    "python": (Field("text", "Text of the rule", "code", "def rule(call):\n    ..."), _ON, _TOOLS),
    "cel": (Field("text", "Condition in CEL", "code", "tool.args.amount > 100"), _ON, _TOOLS, *_OUTCOME),
    "judge": (
        Field("text", "Question to the judge", "code", "Is this what the user asked for?"),
        *(_ON, _TOOLS),
        Field("mode", "Mode", "choice", options=_MODES),
        Field("model", "Model", suggest="models"),
        Field("condition", "Only when", placeholder="a condition in CEL; empty: always"),
    ),
    "at_most": (
        _tool("may be called at most"),
        _part("count", "How often", "number", after="times."),
        *_SENTENCE_OUTCOME,
    ),
    "never_after": (
        _tool("must not be called after"),
        _part("others", "After which tools", placeholder="tool", suggest="tools", after="was called."),
        *_SENTENCE_OUTCOME,
    ),
    "only_after": (
        _tool("may be called only after"),
        _part("others", "After which tools", placeholder="tool", suggest="tools", after="succeeded."),
        *_SENTENCE_OUTCOME,
    ),
    "only_from_user": (
        _tool("may be called only if"),
        _part("args", "Arguments", placeholder="every argument", suggest="args", after="was written by the user or by"),
        _part("trust", "Trusted besides the user", placeholder="nobody else", suggest="tools", after="."),
        *_SENTENCE_OUTCOME,
    ),
}

FORMS: Final[dict[str, str]] = {
    "python": "Python",
    "cel": "Condition (CEL)",
    "judge": "Judge",
    "at_most": "At most … times",
    "never_after": "Never after …",
    "only_after": "Only after …",
    "only_from_user": "Only what the user wrote",
}
"""Every form of rule in the editor, in words; sequence rules have four."""


def fields_of(form: str) -> tuple[Field, ...]:
    """Return the fields of a form.

    Examples
    --------
    >>> [field.name for field in fields_of("at_most")]
    ['tools', 'count', 'action', 'guidance']
    """
    return _FIELDS[form]


def as_text(value: object, field: str) -> str:
    """Return a field's value from a page as text.

    Raises `NoeticConfigError` ``INVALID_FIELD`` for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise NoeticConfigError("INVALID_FIELD", f"The field {field!r} holds text.", given=value, hint="Type it again.")
    return str(value)


def as_names(text: str) -> tuple[str, ...]:
    """Split names at commas.

    Examples
    --------
    >>> as_names("pay, look,,")
    ('pay', 'look')
    """
    return tuple([name.strip() for name in text.split(",") if name.strip()])


def names_text(names: Sequence[str] | None) -> str:
    return ", ".join(names or ())


def as_count(text: str) -> int:
    """Parse a whole number.

    Raises `NoeticConfigError` ``INVALID_FIELD`` for anything else.
    """
    if not text.strip().isdecimal():
        hint = "0 forbids the call, 1 allows one."
        raise NoeticConfigError("INVALID_FIELD", "The count must be a whole number.", given=text, hint=hint)
    return int(text)
