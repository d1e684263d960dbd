"""An ordered, versioned set of rules that may be edited while an agent runs.

Each evaluation first takes a snapshot, and snapshots never change: an edit applies from the next evaluation on, never in
the middle of one. Rules are indexed by enforcement point and tool name, so that rules about other tools cost nothing.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Final, Literal, TypeAlias

from noetic_nb._core.cards import Card, Table, with_card
from noetic_nb.errors import NoeticConfigError
from noetic_nb.markup import plain_line
from noetic_nb.redact import safe_logger
from noetic_nb.steering._evaluation.evaluate import RuleSnapshot
from noetic_nb.steering._predicates.conditions import compiled
from noetic_nb.steering._predicates.python_source import check_on_samples, compile_predicate
from noetic_nb.steering._predicates.sequence_rules import describe_sequence
from noetic_nb.steering._rulebook.rule_decorators import RuleMethods
from noetic_nb.steering._rulebook.rule_files import FileMark, Functions, parsed_rules, read_rules, write_rules
from noetic_nb.steering._rules.rule import CelCondition, PythonPredicate, SequenceRule, SteeringRule, as_rule

_LOG: Final = safe_logger("noetic_nb.steering")

ChangeKind: TypeAlias = Literal["add", "replace", "remove", "enable", "disable", "move", "undo"]


@dataclass(frozen=True, slots=True)
class RuleChange:
    """One step from a version of a rule book to the next."""

    version: int
    change: ChangeKind
    rule_id: str
    old: SteeringRule | None
    new: SteeringRule | None


@with_card(shown="as HTML")
class RuleBook(RuleMethods):
    """Rules as live, versioned data.

    Parameters
    ----------
    rules : iterable of SteeringRule or mapping, optional
        The initial rules, in order.

    Examples
    --------
    >>> from noetic_nb.steering import deny
    >>> rules = RuleBook()
    >>> @rules.rule(on="before_tool_call", tools=["delete"])
    ... def inside_workspace(call):
    ...     if not call.tool_args["path"].startswith("/workspace/"):
    ...         return deny("Stay inside /workspace/.")
    >>> [rule.id for rule in rules], rules.version
    (['inside_workspace'], 1)
    """

    # Set by the layer's module, which is above this one and so cannot be imported. It returns a layer.
    make_layer: ClassVar[Callable[[RuleBook], Any]]

    def __init__(self, rules: Iterable[SteeringRule | Mapping[str, Any]] = ()) -> None:
        self._is_used = False
        self.file: FileMark | None = None
        """The rule file that it was last read from or written to."""
        self.known_tools: Mapping[str, Mapping[str, Any] | None] = {}
        """The JSON Schemas of the tools, by name, of the agent that last used the rules."""
        self._snapshot = RuleSnapshot(0, ())
        self._changes: list[RuleChange] = []
        self._past: list[tuple[tuple[SteeringRule, ...], RuleChange]] = []
        self._listeners: list[Callable[[RuleChange], None]] = []
        # Edits read the rules and then write them; widgets may do so from another thread than the agent's.
        self._lock = threading.RLock()
        # A string would be iterated by letter, and a single rule is not iterable.
        listed = [rules] if isinstance(rules, str | bytes | Mapping) or not isinstance(rules, Iterable) else rules
        first = tuple([_checked(rule) for rule in listed])
        seen: set[str] = set()
        for rule in first:
            if rule.id in seen:
                hint = "Rename one."
                raise NoeticConfigError("DUPLICATE_RULE_ID", "Two rules share an id.", given=rule.id, hint=hint)
            seen.add(rule.id)
        # The initial rules are not a change: version 0, and nothing to undo.
        if first:
            self._snapshot = RuleSnapshot(0, first)

    def __getstate__(self) -> dict[str, Any]:
        # Listeners and the lock belong to this process.
        return {**self.__dict__, "_listeners": [], "_lock": None, "known_tools": {}}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    @property
    def snapshot(self) -> RuleSnapshot:
        """The current rules; never changes."""
        return self._snapshot

    @property
    def version(self) -> int:
        """The number of changes."""
        return self._snapshot.version

    @property
    def changes(self) -> tuple[RuleChange, ...]:
        """All changes, oldest first."""
        return tuple(self._changes)

    @property
    def change_count(self) -> int:
        """The number of changes since the book was made."""
        return len(self._changes)

    def as_layer(self) -> Any:
        """Return the layer that enforces these rules, with its defaults; ``memory=[rules]`` uses this layer."""
        return type(self).make_layer(self)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the rules to a file, as `noetic_nb.steering.save_rules` does.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> rules = RuleBook()
        >>> _ = rules.at_most(3, "search")
        >>> with TemporaryDirectory() as folder:
        ...     list(RuleBook.load(rules.save(f"{folder}/rules.json"))) == list(rules)
        True
        """
        return save_rules(self, path)

    @staticmethod
    def load(path: str | PathLike[str], *, functions: Functions | None = None) -> RuleBook:
        """Read a rule book from a file, as `noetic_nb.steering.load_rules` does."""
        return load_rules(path, functions=functions)

    def mark_used(self) -> None:
        """Record that these rules are evaluated; ``harness.check()`` reports a rule book without that."""
        self._is_used = True

    def __iter__(self) -> Iterator[SteeringRule]:
        return iter(self._snapshot)

    def __len__(self) -> int:
        return len(self._snapshot)

    def __contains__(self, rule_id: object) -> bool:
        return isinstance(rule_id, str) and self.find(rule_id) is not None

    def find(self, rule_id: str) -> SteeringRule | None:
        """Return the rule with an id, or None if there is none."""
        return next((rule for rule in self._snapshot if rule.id == rule_id), None)

    def __getitem__(self, rule_id: str) -> SteeringRule:
        if (found := self.find(rule_id)) is not None:
            return found
        known = ", ".join(repr(rule.id) for rule in self._snapshot) or "none"
        raise NoeticConfigError("UNKNOWN_RULE", "There is no such rule.", given=rule_id, hint=f"Rules: {known}.")

    def put(self, rule: SteeringRule | Mapping[str, Any]) -> SteeringRule:
        """Add a rule at the end, or replace the one with its id in place.

        Raises
        ------
        NoeticConfigError
            ``INVALID_RULE``, ``RULE_DOES_NOT_COMPILE`` or ``MISSING_PACKAGE``; the rule book then stays unchanged.
        """
        # Compiled before the lock is taken, because a condition in a process may take seconds.
        new = _checked(rule)
        with self._lock:
            rules = list(self._snapshot.rules)
            for position, old in enumerate(rules):
                if old.id == new.id:
                    rules[position] = new
                    self._change_to("replace", new.id, rules, old, new)
                    return new
            self._change_to("add", new.id, [*rules, new], None, new)
        return new

    def draft(self, rule_id: str, text: str) -> SteeringRule:
        """Return a Python rule with another text, without adding it to the book, so that it can be tried first.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_RULE``, ``INVALID_RULE`` for a rule of another form, ``RULE_DOES_NOT_COMPILE`` with a `line`.
        """
        old = self[rule_id]
        match old.decider:
            case PythonPredicate(function):
                names = getattr(inspect.unwrap(function), "__globals__", {})
            case None:
                names = {}
            case other:
                what = f"Rule {rule_id!r} is not a Python rule."
                hint = "Replace the whole rule: rules.put({...})."
                raise NoeticConfigError("INVALID_RULE", what, given=other.form, hint=hint, rule_id=rule_id)
        predicate = compile_predicate(rule_id, text, names)
        return old.model_copy(update={"predicate": predicate, "source": text})

    def replace_source(self, rule_id: str, text: str, *, samples: Iterable[Any] = ()) -> SteeringRule:
        """Replace a Python rule by the function in a text, if it compiles and works; else the last good version stays.

        Parameters
        ----------
        rule_id : str
            The id of the rule.
        text : str
            Source of one function; it may use the names its old version could use, and `allow`, `deny`, `guide`.
        samples : iterable, optional
            Calls or responses to try the new version on first (records with the fields of the hook's parameters).

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_RULE``, ``RULE_DOES_NOT_COMPILE`` or ``RULE_FAILS_ON_SAMPLE``; the last two have a `line`.
        """
        new = self.draft(rule_id, text)
        check_on_samples(new, samples)
        return self.put(new)

    def remove(self, rule_id: str) -> SteeringRule:
        """Remove a rule."""
        with self._lock:
            old = self[rule_id]
            self._change_to("remove", rule_id, [rule for rule in self._snapshot if rule.id != rule_id], old, None)
        return old

    def enable(self, rule_id: str) -> None:
        """Evaluate a rule again."""
        self._switch(rule_id, True)

    def disable(self, rule_id: str) -> None:
        """Keep a rule in its place but do not evaluate it."""
        self._switch(rule_id, False)

    def move(self, rule_id: str, position: int) -> None:
        """Move a rule to another position.

        Parameters
        ----------
        rule_id : str
            The id of the rule.
        position : int
            0 for the first place, ``len(rules) - 1`` or -1 for the last.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_RULE`` or ``INVALID_POSITION``.
        """
        with self._lock:
            rule, count = self[rule_id], len(self._snapshot)
            if isinstance(position, bool) or not isinstance(position, int) or not -count <= position < count:
                what = "There is no such place among the rules."
                hint = f"Use 0 to {count - 1}, or -1 for the last."
                raise NoeticConfigError("INVALID_POSITION", what, given=position, hint=hint)
            place = position % count
            if self._snapshot.rules[place] is rule:
                return
            rest = [other for other in self._snapshot if other.id != rule_id]
            rest.insert(place, rule)
            self._change_to("move", rule_id, rest, rule, rule)

    @property
    def can_undo(self) -> bool:
        """Whether there is a change to undo."""
        return bool(self._past)

    def undo(self) -> RuleChange | None:
        """Undo the last change, as a change of its own; None if there is nothing to undo."""
        with self._lock:
            if not self._past:
                return None
            before, last = self._past.pop()
            self._change_to("undo", last.rule_id, before, last.new, last.old, remember=False)
            return self._changes[-1]

    def listen(self, listener: Callable[[RuleChange], None]) -> Callable[[], None]:
        """Call `listener` after every change, until it raises; return a function that ends this."""

        def relay(change: RuleChange) -> None:  # one per call, so that the same function may listen twice
            listener(change)

        self._listeners.append(relay)
        return lambda: self._forget(relay)

    def _forget(self, listener: Callable[[RuleChange], None]) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def _switch(self, rule_id: str, enabled: bool) -> None:
        with self._lock:
            old = self[rule_id]
            if old.enabled == enabled:
                return
            new = old.model_copy(update={"enabled": enabled})
            rules = [new if rule.id == rule_id else rule for rule in self._snapshot]
            self._change_to("enable" if enabled else "disable", rule_id, rules, old, new)

    def _change_to(
        self,
        kind: ChangeKind,
        rule_id: str,
        rules: Iterable[SteeringRule],
        old: SteeringRule | None,
        new: SteeringRule | None,
        *,
        remember: bool = True,
    ) -> None:
        before = self._snapshot.rules
        version = self._snapshot.version + 1
        # One assignment, so that readers need no lock: an evaluation sees the whole change or none of it.
        self._snapshot = RuleSnapshot(version, tuple(rules))
        change = RuleChange(version, kind, rule_id, old, new)
        self._changes.append(change)
        if remember:
            self._past.append((before, change))
        # A copy, because a listener may remove itself.
        for listener in tuple(self._listeners):
            try:
                listener(change)
            except Exception:
                _LOG.exception("A listener of a rule book failed and was removed; the change stands.")
                self._forget(listener)

    def __repr__(self) -> str:
        ids = [rule.id for rule in self._snapshot]
        more = f", … {len(ids) - MAX_IDS} more" if len(ids) > MAX_IDS else ""
        return f"RuleBook(version {self.version}: {', '.join(map(plain_line, ids[:MAX_IDS])) or 'no rules'}{more})"

    def _card(self) -> Card:
        return _rules_card(self.version, self._snapshot)


def save_rules(rules: Iterable[SteeringRule], path: str | PathLike[str]) -> Path:
    """Write rules to a file.

    Parameters
    ----------
    rules : RuleBook or iterable of SteeringRule
        Python rules are written by name.
    path : path-like
        A ``.yaml``, ``.yml`` (extra ``rules``) or ``.json`` file; replaced if it exists.

    Raises
    ------
    NoeticConfigError
        ``INVALID_FORMAT`` for another suffix, ``MISSING_PACKAGE`` without the extra ``rules``, ``CANNOT_WRITE``; an
        existing file is then kept.
    """
    mark = write_rules(rules, path)
    if isinstance(rules, RuleBook):
        rules.file = mark
    return Path(path)


def load_rules(path: str | PathLike[str], *, functions: Functions | None = None) -> RuleBook:
    """Read a rule file.

    Parameters
    ----------
    path : path-like
        A ``.yaml``, ``.yml`` or ``.json`` file.
    functions : mapping of str to callable, optional
        The functions of the Python rules, by the names in the file.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RULE_FILE`` if it cannot be read, ``UNBOUND_RULE`` for a Python rule without its function,
        ``RULE_DOES_NOT_COMPILE``, ``DUPLICATE_RULE_ID``, ``INVALID_FORMAT``, ``MISSING_PACKAGE``.
    """
    rules, mark = read_rules(path, functions)
    book = RuleBook(rules)
    book.file = mark
    return book


def parse_rules(
    text: str,
    *,
    format: Literal["yaml", "json"] = "yaml",
    functions: Functions | None = None,
    source: str = "The rules",
) -> RuleBook:
    r"""Return the rule book of a text; see `load_rules`.

    Examples
    --------
    >>> rules = parse_rules("version: 1\nrules:\n- id: large\n  tools: [pay]\n  when: tool.args.amount > 100\n")
    >>> rules["large"].form, rules["large"].tools
    ('cel', ('pay',))
    """
    return RuleBook(parsed_rules(text, format, functions, source))


def unused_books() -> tuple[RuleBook, ...]:
    """Return unused rule books with rules in the callers' variables outside the library."""
    seen: dict[int, object] = {}
    frame: FrameType | None = sys._getframe(1)
    is_nearest = True
    while frame is not None:
        if str(frame.f_globals.get("__name__")).split(".")[0] != "noetic_nb":
            # For outer frames only local names, because their modules may be any code.
            names = (*frame.f_globals.values(), *frame.f_locals.values()) if is_nearest else frame.f_locals.values()
            seen.update({id(value): value for value in names})
            is_nearest = False
        frame = frame.f_back
    books = [value for value in seen.values() if isinstance(value, RuleBook)]
    # Rules that are written but not enforced are a trap.
    return tuple([book for book in books if not book._is_used and any(rule.enabled for rule in book)])


def _checked(rule: SteeringRule | Mapping[str, Any]) -> SteeringRule:
    """Return a rule that can be evaluated: a condition that does not compile never gets into a rule book."""
    found = as_rule(rule)
    if found.form == "cel":
        compiled(found)
    return found


MAX_IDS: Final = 8  # a repr should be short; the table has all of them


def _summary(rule: SteeringRule) -> str:
    """Return the decider of a rule, in one line."""
    parts: list[str] = []
    match rule.decider:
        case PythonPredicate():
            parts.append("Python")
        case CelCondition(text):
            parts.append(f"when {text}" if rule.llm_eval is not None else f"when {text} → {rule.action or 'deny'}")
        case SequenceRule() as sequence:
            parts.append(describe_sequence(rule, sequence))
    if rule.llm_eval is not None:
        parts.append(f"{rule.llm_eval.model} judges: {rule.llm_eval.prompt}")
    return " ".join(parts)


def _rules_card(version: int, rules: RuleSnapshot) -> Card:
    """Return rules in order: where they apply and how they decide."""
    rows = (
        (
            place,
            rule.id,
            ", ".join(point.replace("_", " ") for point in rule.applies_to),
            "every tool" if rule.tools is None else ", ".join(rule.tools),
            _summary(rule),
            "" if rule.enabled else "off",
        )
        for place, rule in enumerate(rules, start=1)
    )
    names = ("", "Rule", "Where", "Tools", "Decides", "")
    return Card("RuleBook", facts=[("", f"version {version}")], table=Table(names, rows, len(rules), "no rules yet"))
