"""The errors, in two families that never mix.

::

    Exception
    ├── NoeticError          a run went wrong; `kind` and the facts are attributes
    ├── NoeticConfigError    the set-up cannot work; `code` says which rule it breaks
    └── ItemValidationError  a value is not an item at all (a `ValueError`, as schemas raise)

The first two are siblings and neither is a `ValueError`, so that pydantic never swallows one. Every message says what
happened, what was given and what to do.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from noetic_nb.redact import REDACTED, redact, redact_text

__all__ = ["ErrorKind", "ItemValidationError", "NoeticConfigError", "NoeticError", "innermost", "printable"]


def __dir__() -> list[str]:
    return sorted(__all__)


ErrorKind: TypeAlias = Literal[
    "step_failed",
    "llm_refused",
    "llm_parse_error",
    "llm_rate_limit",
    "llm_failed",
    "fork_partial",
    "spawn_summary_failed",
    "channel_timeout",
    "channel_closed",
    "cancelled",
    "item_schema_mismatch",
    "budget_exceeded",
    "steering_denied",
    "hook_timeout",
    "tool_failed",
    "invalid_run_file",
    "storage_failed",
    "state_conflict",
    "tape_missing",
    "handle_evicted",
    "not_saved",
    "worker_died",
    "layer_failed",
]
"""Every kind of `NoeticError`. `llm_failed` and the kinds after `tool_failed` are this library's own."""

# Fields of the kinds that the runtime defines; a field that an error does not set is None.
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "step_failed": ("step_id", "cause", "retries_exhausted"),
    "llm_refused": ("step_id", "refusal"),
    "llm_parse_error": ("step_id", "raw", "schema", "validation_error"),
    "llm_rate_limit": ("step_id", "retry_after_ms"),
    "llm_failed": ("step_id",),
    "fork_partial": ("step_id", "succeeded", "failed"),
    "spawn_summary_failed": ("step_id", "child_output", "summary_cause"),
    "channel_timeout": ("channel_name", "timeout"),
    "channel_closed": ("channel_name",),
    "cancelled": ("reason",),
    "item_schema_mismatch": ("category", "item_type"),
    "budget_exceeded": ("field", "limit", "actual"),
    "steering_denied": ("guidance",),
    "handle_evicted": ("handle_id", "step_id", "grace_period_ms"),
}

_MISSING: Final = object()

# C0/C1 controls and bidirectional overrides can hide or reorder text and control a terminal.
_INVISIBLE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
# Long values make messages unreadable; the full value stays on `given`.
_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 160
_SHORT.maxdict = _SHORT.maxlist = _SHORT.maxtuple = 6
_SHORT.maxlevel = 3
# The part of a repr that is searched for secrets.
_LONGEST: Final = 10_000


def _clean(value: Any) -> Any:
    """Return a value without its secrets; the object itself if it has none."""
    if not isinstance(value, str | Mapping | list | tuple):
        return value
    try:
        clean = redact(value)
    except Exception:  # a user's mapping may raise anything, but the error must still be created
        return REDACTED
    try:
        return value if clean == value else clean
    except Exception:  # too deep to compare, or compared by user code
        return clean


def _given(value: object) -> str:
    """Return a value as short text; secrets are removed before it is cut, because half of one is not recognisable."""
    if isinstance(value, str | int | float | Mapping | list | tuple | None):
        return redact_text(_SHORT.repr(value))
    try:
        text = redact_text(repr(value)[:_LONGEST])
    except Exception:  # a user's repr may raise anything
        return _SHORT.repr(value)
    return text if len(text) <= _SHORT.maxother else f"{text[:78]}...{text[-79:]}"


def printable(text: str) -> str:
    r"""Return a text with its control characters, lone surrogates and bidirectional overrides shown as code points.

    Examples
    --------
    >>> printable("a" + chr(27) + "[31m")
    'a[U+001B][31m'
    """
    return _INVISIBLE.sub(lambda match: f"[U+{ord(match[0]):04X}]", text)


def _sentence(text: str) -> str:
    return text if not text or text[-1] in ".!?" else text + "."


def _shown(error: BaseException | None) -> BaseException | None:
    """Return an exception of other code for tracebacks: itself, or a copy without secrets if its chain contains one."""
    chain: dict[int, BaseException] = {}
    work = [error]
    while work:
        each = work.pop()
        # Errors of this library contain no secrets, and treat their own chain in the same way.
        if each is not None and not isinstance(each, _Chained) and id(each) not in chain:
            chain[id(each)] = each
            work += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]
    if all(_said(each) == _text(each) for each in chain.values()):
        return error
    made: dict[int, BaseException] = {}

    def like(each: BaseException | None) -> Any:
        if each is None or id(each) not in chain:
            return each
        if id(each) not in made:
            parts = [like(part) for part in each.exceptions] if isinstance(each, BaseExceptionGroup) else []
            made[id(each)] = found = _like(each, _said(each)[0], parts)  # before its chain, which may be cyclic
            found.__traceback__, found.__notes__ = each.__traceback__, _said(each)[1:]
            found.__cause__, found.__context__ = like(each.__cause__), like(each.__context__)
            found.__suppress_context__ = each.__suppress_context__
        return made[id(each)]

    shown: BaseException | None = like(error)
    return shown


def _text(error: BaseException) -> list[str]:
    """Return the text and the notes of an exception, as a traceback prints them."""
    try:
        return [str(error), *map(str, getattr(error, "__notes__", ()))]
    except Exception:  # a user's `__str__` may raise anything
        return [f"<{type(error).__name__} without a text>"]


def _said(error: BaseException) -> list[str]:
    return [redact_text(text) for text in _text(error)]


def _like(error: BaseException, text: str, parts: list[Any]) -> BaseException:
    """Return an exception of the same class, with another text and without secrets in its fields."""
    if isinstance(error, BaseExceptionGroup):
        return error.derive(parts)
    kind = type(error)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__str__": lambda _: text}
    try:
        made: Any = type(kind.__name__, (kind,), names)
        like: BaseException = made.__new__(made)
        like.args = (text,)
        like.__dict__.update({name: _clean(value) for name, value in vars(error).items()})
    except Exception:  # a class that cannot be created without its arguments, or subclassed
        made = type(kind.__name__, (Exception,), names)
        like = made(text)
    return like


_CAUSE: Any = BaseException.__dict__["__cause__"]
_CONTEXT: Any = BaseException.__dict__["__context__"]


class _Chained:
    """An error that shows no secrets, neither in its fields nor in the errors that caused it."""

    args: tuple[Any, ...]

    def _say(self, what: str, given: object, hint: str, *, before: str = "", instead_of_hint: object = None) -> str:
        """Store the event, the given value and the hint; returns the message made from them."""
        self.what, self.hint = _clean(what), _clean(hint)
        self.given = None if given is _MISSING else _clean(given)
        said = "" if given is _MISSING else f" Given: {_given(self.given)}."
        advice = self.hint or (instead_of_hint if isinstance(instead_of_hint, str) else "")
        return printable(f"{before}{_sentence(self.what)}{said}{' ' if advice else ''}{_sentence(advice)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), dict(self.__dict__), self.args)

    @property
    def __cause__(self) -> BaseException | None:
        return _shown(_CAUSE.__get__(self))

    @__cause__.setter
    def __cause__(self, error: BaseException | None) -> None:
        _CAUSE.__set__(self, error)

    @property
    def __context__(self) -> BaseException | None:
        return _shown(_CONTEXT.__get__(self))

    @__context__.setter
    def __context__(self, error: BaseException | None) -> None:
        _CONTEXT.__set__(self, error)


class NoeticError(_Chained, Exception):
    """A run went wrong.

    Parameters
    ----------
    kind : str
        Stable name of the problem, one of `ErrorKind`.
    what : str
        What happened, in one sentence.
    given : object, optional
        The value that caused it; shortened in the message, complete on the error; secrets in it are replaced, as in
        every other field.
    hint : str, optional
        What to do about it.
    **facts
        The fields of this kind, such as ``step_id`` or ``guidance``; each becomes an attribute. Fields of the kind that
        are not given are None.

    Examples
    --------
    >>> error = NoeticError("steering_denied", "The call of 'pay' was denied.", guidance="Ask first.")
    >>> error.kind, error.guidance
    ('steering_denied', 'Ask first.')
    >>> print(error)
    The call of 'pay' was denied. Ask first.
    """

    def __init__(self, kind: ErrorKind, what: str, *, given: object = _MISSING, hint: str = "", **facts: Any) -> None:
        self.kind: ErrorKind = kind
        self.facts: dict[str, Any] = {name: _clean(fact) for name, fact in facts.items()}
        super().__init__(self._say(what, given, hint, instead_of_hint=self.facts.get("guidance")))

    def __getattr__(self, name: str) -> Any:
        # Only called for names that are not set, so facts never shadow the attributes above.
        facts = self.__dict__.get("facts", {})
        if name in facts or name in _FIELDS.get(self.__dict__.get("kind", ""), ()):
            return facts.get(name)
        raise AttributeError(f"{type(self).__name__}(kind={self.__dict__.get('kind')!r}) has no field {name!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return the error as plain data: its kind, its message, and those facts that are plain data."""
        plain = {k: v for k, v in self.facts.items() if isinstance(v, str | int | float | bool | None)}
        return {"kind": self.kind, "message": str(self), **plain}


class NoeticConfigError(_Chained, Exception):
    """The set-up cannot work.

    Parameters
    ----------
    code : str
        The broken rule, in ``SCREAMING_SNAKE``; stable.
    what : str
        The problem, in one sentence.
    given : object, optional
        The offending value.
    hint : str
        What to do about it.
    **facts
        Further fields, each an attribute.

    Examples
    --------
    >>> error = NoeticConfigError("DUPLICATE_LAYER_ID", "Two layers share an id.", given="notes", hint="Rename one.")
    >>> error.code, error.given
    ('DUPLICATE_LAYER_ID', 'notes')
    """

    def __init__(self, code: str, what: str, *, given: object = _MISSING, hint: str = "", **facts: Any) -> None:
        self.code = code
        self.facts: dict[str, Any] = {name: _clean(fact) for name, fact in facts.items()}
        super().__init__(self._say(what, given, hint, before=f"[{code}] "))

    def __getattr__(self, name: str) -> Any:
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__}(code={self.__dict__.get('code')!r}) has no field {name!r}")


class ItemValidationError(_Chained, ValueError):
    """A value is not an item: not a mapping, without a ``type``, or not representable in JSON.

    Examples
    --------
    >>> raise ItemValidationError("An item needs a non-empty string `type`.", given={"role": "user"})
    Traceback (most recent call last):
    ...
    noetic_nb.errors.ItemValidationError: An item needs a non-empty string `type`. Given: {'role': 'user'}.
    """

    def __init__(self, what: str, *, given: object = _MISSING, hint: str = "") -> None:
        super().__init__(self._say(what, given, hint))


def _rebuild(cls: type[Exception], state: dict[str, Any], args: tuple[Any, ...]) -> Exception:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


# Kinds of error that wrap another error and say where it occurred.
_WRAPPERS: Final = frozenset({"step_failed", "fork_partial", "spawn_summary_failed"})


def innermost(error: BaseException) -> BaseException:
    """Return the first cause of an error, below all wrapping.

    Errors that only say where something failed (``step_failed``, ``fork_partial``, ``spawn_summary_failed``) are
    skipped; an error that says what failed, such as ``llm_parse_error``, is returned, whatever its own cause.

    Parameters
    ----------
    error : BaseException
        Any exception; ``step_failed`` errors have their ``cause``, others may be chained with ``from``.

    Examples
    --------
    >>> root = KeyError("order")
    >>> innermost(NoeticError("step_failed", "Step 'a' failed.", cause=root)) is root
    True
    """
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, NoeticError) and error.kind not in _WRAPPERS:
            return error
        cause: object = error.facts.get("cause") if isinstance(error, NoeticError) else None
        if not isinstance(cause, BaseException):
            cause = _CAUSE.__get__(error)  # the stored object
        if not isinstance(cause, BaseException):
            return error
        error = cause
    return error
