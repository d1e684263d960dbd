"""Facts about a rule from its text alone: the tools and arguments it names, known or unknown, and its side effects."""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, ClassVar, Final, Literal, TypeAlias

from noetic_nb._core.names import nearest, skeleton
from noetic_nb.items._origins import trusted_source
from noetic_nb.steering._predicates.cel_names import cel_tokens
from noetic_nb.steering._predicates.sequence_rules import LINKS, has_argument, misspelt_arguments
from noetic_nb.steering._rules.rule import CelCondition, PythonPredicate, SequenceRule, SteeringRule

# Modules whose functions vary with time or have effects on the outside world.
_IMPURE_MODULES: Final = frozenset(
    {
        *("time", "random", "secrets", "uuid", "os", "subprocess", "socket", "shutil", "tempfile"),
        *("requests", "httpx", "urllib", "http", "smtplib", "sqlite3", "logging"),
    }
)
_IMPURE_BUILTINS: Final = frozenset({"open", "print", "input", "exec", "eval", "setattr", "delattr"})
_CLOCKS: Final = frozenset({"now", "today", "utcnow", "now_ms", "monotonic_ms"})
_CHANGING: Final = frozenset(
    {"append", "add", "update", "pop", "clear", "remove", "extend", "insert", "setdefault", "discard", "popitem"}
)
_WHOLES: Final = frozenset({"tool_args", "raw_args", "tool_values"})
_ACTIONS: Final = frozenset({"deny", "guide", "ask"})
_PLACE: Final = re.compile(r"\{tool\.args\.([A-Za-z0-9_]+)")


@dataclass(slots=True)
class StaticFacts:
    """The readable properties of a rule."""

    tools: set[str] = field(default_factory=set)
    """Tools it names besides `rule.tools`: those in comparisons and those of a sequence."""
    about: set[str] = field(default_factory=set)  # those of them that it compares the called tool with
    arguments: set[str] = field(default_factory=set)  # arguments it names, or paths such as ``invite.email``
    trusted: set[str] = field(default_factory=set)
    """Tools, or fields of their results, that it trusts: ``get_contacts.email``."""
    maybe: set[str] = field(default_factory=set)
    """Texts it compares with a ``name`` that may not be a tool's."""
    demanded: set[str] = field(default_factory=set)
    """Arguments that must be present, ``call.tool_args["path"]``: a misspelling there raises instead of passing silently."""
    impure: list[str] = field(default_factory=list)
    reads_all: bool = False  # whether it may read arguments that it does not name
    silent: bool = False  # whether it can block a call without a reason


def read_rule(rule: SteeringRule) -> StaticFacts:
    """Return the names, arguments and faults that can be read from a rule."""
    found = StaticFacts(arguments=set(_PLACE.findall(rule.guidance or "")), reads_all=rule.llm_eval is not None)
    match rule.decider:
        case CelCondition(text):
            _read_condition(text, found)
            decides = rule.llm_eval is None and rule.action != "allow"
            found.silent = decides and not (rule.guidance or "").strip()
        case SequenceRule(others=others, args=args, trust=trust):
            found.tools |= set(others)
            named = [one for one in trust if one not in ("user", "system") and not one.startswith("layer:")]
            found.trusted |= {trusted_source(one).name for one in named}
            found.arguments |= {path.removesuffix(f".{LINKS}") for path in args}
            found.reads_all = rule.sequence is not None and rule.sequence.kind == "only_from_user" and not args
            # Without its own guidance it has a default text.
            found.silent = rule.guidance is not None and not rule.guidance.strip()
        case PythonPredicate(function):
            found.reads_all = rule.source is None or not _read_python(function, rule.source, found)
    return found


def _text_of(token: str) -> str:
    return token.lstrip("rRbB").strip("'\"")


def _read_condition(text: str, found: StaticFacts) -> None:
    tokens = [(kind, value) for kind, value, _ in cel_tokens(text)]
    marks = [value for _, value in tokens]
    for at, (kind, value) in enumerate(tokens):
        before = marks[max(0, at - 3) : at]
        if kind == "ident" and value == "tool" and before[-1:] != ["."]:
            after = marks[at + 1 : at + 5]  # the arguments as a whole, or the call
            is_named = after[3:] and (after[2] == "." or (after[2] == "[" and tokens[at + 4][0] == "string"))
            found.reads_all |= after[:2] != [".", "name"] and not (after[:2] == [".", "args"] and is_named)
        if kind == "ident" and before[-3:] == ["tool", ".", "args"]:
            continue
        if kind == "ident" and marks[max(0, at - 4) : at] == ["tool", ".", "args", "."]:
            found.arguments.add(value)
        elif kind == "string" and marks[max(0, at - 4) : at] == ["tool", ".", "args", "["]:
            found.arguments.add(_text_of(value))
        elif kind == "ident" and value == "name" and before[-1:] == ["."]:
            names = set(_compared(tokens, at))
            found.tools |= names
            if before[-2:-1] == ["tool"]:
                found.about |= names


def _compared(tokens: list[tuple[str, str]], at: int) -> Iterator[str]:
    """Yield the texts that the name at this position is compared with."""
    following = tokens[at + 1 : at + 3]
    if len(following) == 2 and following[0][1] in ("==", "!=") and following[1][0] == "string":
        yield _text_of(following[1][1])
    if at >= 4 and tokens[at - 3][1] in ("==", "!=") and tokens[at - 4][0] == "string":
        yield _text_of(tokens[at - 4][1])
    if len(following) == 2 and following[0][1] == "in" and following[1][1] == "[":
        for kind, value in tokens[at + 3 :]:
            if value == "]":
                return
            if kind == "string":
                yield _text_of(value)


def _read_python(function: Any, source: str, found: StaticFacts) -> bool:
    """Read the source of a function; return whether it only reads the arguments that it names."""
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:  # a lambda inside a longer statement, whose text cannot be parsed by itself
        return False
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    ]
    if not functions:
        return False
    reader = _PythonReader(functions[0], getattr(function, "__globals__", {}), found)
    reader.read()
    return reader.reads_by_name()


def _names_history(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr == "history" for part in ast.walk(node))


class _PythonReader:
    """Walks over one function and knows its local names."""

    def __init__(
        self,
        function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        names: Mapping[str, Any],
        found: StaticFacts,
    ) -> None:
        self.function = function
        self.names = names
        self.found = found
        arguments = function.args
        self.parameter = next((arg.arg for arg in [*arguments.posonlyargs, *arguments.args]), "")
        body = function.body if isinstance(function.body, list) else [function.body]
        self.nodes = [node for statement in body for node in ast.walk(statement)]
        self.own = {node.id for node in self.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        loops = [node for node in self.nodes if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension)]
        self.past = {
            target.id
            for loop in loops
            if _names_history(loop.iter)
            for target in ast.walk(loop.target)
            if isinstance(target, ast.Name)
        }
        self.imported = {
            (alias.asname or alias.name).split(".")[0]: (getattr(node, "module", None) or alias.name).split(".")[0]
            for node in self.nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }

    def read(self) -> None:
        for node in self.nodes:
            if isinstance(node, ast.Global | ast.Nonlocal):
                self.impure(f"it changes {', '.join(node.names)}, which outlives it", node)
            elif isinstance(node, ast.Call):
                self.call(node)
            elif isinstance(node, ast.Compare):
                self.compare(node)
            elif isinstance(node, ast.Subscript):
                self.subscript(node)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
                self.impure(f"it changes {ast.unparse(node)}", node)
            elif isinstance(node, ast.Dict):
                self.decision(node)

    def reads_by_name(self) -> bool:
        """Tell whether neither the call nor its arguments are used as a whole."""
        named = {id(node.value) for node in self.nodes if isinstance(node, ast.Subscript) and self.argument(node.slice)}
        gets = [
            node.func for node in self.nodes if isinstance(node, ast.Call) and node.args and self.argument(node.args[0])
        ]
        named |= {id(get.value) for get in gets if isinstance(get, ast.Attribute) and get.attr == "get"}
        parts = {id(node.value) for node in self.nodes if isinstance(node, ast.Attribute)}
        for node in self.nodes:
            if isinstance(node, ast.Attribute) and node.attr in _WHOLES and id(node) not in named:
                return False
            if isinstance(node, ast.Name) and node.id == self.parameter and id(node) not in parts:
                return False
        return True

    def impure(self, what: str, node: ast.AST) -> None:
        self.found.impure.append(f"{what} (line {getattr(node, 'lineno', '?')})")

    def module_of(self, name: str) -> str | None:
        if name in self.imported:
            return self.imported[name]
        if name in self.own:
            return None
        value = self.names.get(name)
        if isinstance(value, ModuleType):
            return value.__name__.split(".")[0]
        home = getattr(value, "__module__", None)
        return home.split(".")[0] if isinstance(home, str) and callable(value) else None

    def call(self, node: ast.Call) -> None:
        root: ast.expr = node.func
        path: list[str] = []
        while isinstance(root, ast.Attribute):
            path.append(root.attr)
            root = root.value
        if not isinstance(root, ast.Name):
            return
        name = root.id
        shown = ast.unparse(node.func)
        if name in _IMPURE_BUILTINS and not path and name not in self.own and name not in self.names:
            assert hasattr(builtins, name)
            self.impure(f"it calls {shown}()", node)
        elif (self.module_of(name) or "") in _IMPURE_MODULES:
            self.impure(f"it calls {shown}(), which has side effects or depends on more than the call", node)
        elif path and path[0] in _CLOCKS:
            self.impure(f"it reads a clock: {shown}()", node)
        elif path and path[0] in _CHANGING and name not in self.own and name != self.parameter:
            self.impure(f"it changes {name}, which outlives it", node)
        elif path and path[0] == "get" and path[1:2] == ["tool_args"] and node.args:
            self.found.arguments |= self.argument(node.args[0])
        if (path[0] if path else name) in _ACTIONS and not self.says_something(node):
            self.found.silent = True

    @staticmethod
    def says_something(node: ast.Call) -> bool:
        first = node.args[0] if node.args else next((k.value for k in node.keywords), None)
        return first is not None and not (isinstance(first, ast.Constant) and not str(first.value or "").strip())

    def decision(self, node: ast.Dict) -> None:
        keys = {
            key.value: value for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant)
        }
        action = keys.get("action")
        if isinstance(action, ast.Constant) and action.value in _ACTIONS and "guidance" not in keys:
            self.found.silent = True

    @staticmethod
    def argument(node: ast.expr) -> set[str]:
        return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()

    def subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "tool_args":
            if isinstance(node.ctx, ast.Load):
                self.found.demanded |= self.argument(node.slice)
            else:
                self.impure("it changes the arguments of the call", node)
        elif not isinstance(node.ctx, ast.Load):
            root = node.value
            if isinstance(root, ast.Name) and root.id not in self.own:
                self.impure(f"it changes {root.id}, which outlives it", node)

    def compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        named = [side for side in sides if isinstance(side, ast.Attribute) and side.attr in ("tool_name", "name")]
        if not named:
            return
        texts = {
            part.value
            for side in sides
            for part in ast.walk(side)
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and not isinstance(side, ast.Call)
        }
        if named[0].attr == "tool_name":
            self.found.tools |= texts
            self.found.about |= texts
        elif self.is_of_history(named[0].value):
            self.found.tools |= texts
        else:
            self.found.maybe |= texts

    def is_of_history(self, owner: ast.expr) -> bool:
        """Tell whether an expression is a call of the history: ``call.history[-1]``, or ``past`` in a loop over it."""
        return _names_history(owner) or (isinstance(owner, ast.Name) and owner.id in self.past)


KnownTools: TypeAlias = Mapping[str, Mapping[str, Any] | None]
"""The JSON Schema of the arguments of each tool; None if unknown."""

MOST_NAMES: Final = 12  # a longer list of names would not be read


class UnknownTarget(UserWarning):
    """A rule names a tool or an argument that no tool has; `why` and `fix` explain it in sentences."""

    warning_code: ClassVar[str] = "unknown_rule_target"

    def __init__(
        self,
        rule_id: str,
        code: Literal["unknown_tool", "unknown_argument"],
        name: str,
        why: str,
        fix: str,
        near: str | None = None,
    ) -> None:
        super().__init__(f"Rule {rule_id!r}: {why} {fix}")
        self.near = near
        self.rule_id = rule_id
        self.code = code
        self.name = name
        self.why = why
        self.fix = fix


def unknown_targets(
    rules: Iterable[SteeringRule], tools: KnownTools, *, guesses: bool = False
) -> tuple[UnknownTarget, ...]:
    """Return the names in enabled rules that no tool has; with `guesses`, also every text compared with a ``name``."""
    found: list[UnknownTarget] = []
    for rule in rules:
        if rule.enabled:
            facts = read_rule(rule)
            found += _unknown_tools(rule, facts, tools, guesses)
            found += _unknown_arguments(rule, facts, tools, guesses)
    return tuple(found)


def _unknown_tools(rule: SteeringRule, facts: StaticFacts, tools: KnownTools, guesses: bool) -> Iterator[UnknownTarget]:
    known = set(map(skeleton, tools))
    named = {*(rule.tools or ()), *facts.tools, *(facts.maybe if guesses else ())}
    # ``contacts.email`` is a field of the results of ``contacts``, or a tool with a dot in its name.
    for entry in facts.trusted:
        if skeleton(entry) not in known:
            named.add(entry.rpartition(".")[0] or entry)
    for name in sorted(named):
        if skeleton(name) not in known:
            near = nearest(name, tools)
            fix = f"Did you mean {near!r}?" if near else _there_are(tools, "no tools")
            yield UnknownTarget(rule.id, "unknown_tool", name, f"There is no tool {name!r}.", fix, near)


def _unknown_arguments(
    rule: SteeringRule, facts: StaticFacts, tools: KnownTools, guesses: bool
) -> Iterator[UnknownTarget]:
    known = {skeleton(name): name for name in tools}
    named = [*(rule.tools or ()), *facts.about]
    about = [known[skeleton(name)] for name in named if skeleton(name) in known]
    if not tools or "before_tool_call" not in rule.applies_to:
        return
    schemas = [tools[name] for name in about or tools]
    if len(about) > 1 and isinstance(rule.sequence, SequenceRule):
        # Each tool needs one of the arguments: calls of a tool without any are refused.
        for name in about:
            wrong = misspelt_arguments(rule, rule.sequence, tools[name] or {})
            if wrong:
                fix = f"Name one of its arguments, or leave {name} out."
                yield UnknownTarget(rule.id, "unknown_argument", wrong[0], f"{name} has no argument of the rule.", fix)
    for path in sorted(facts.arguments | facts.demanded if guesses else facts.arguments):
        if any(schema is None or has_argument(schema, path) for schema in schemas):
            continue
        possible = sorted({name for schema in schemas for name in (schema or {}).get("properties") or ()})
        near = nearest(path, possible)
        fix = f"Did you mean {near!r}?" if near else _there_are(possible, "none")
        whose = ", ".join(sorted(set(about))) or "any tool"
        yield UnknownTarget(rule.id, "unknown_argument", path, f"{path!r} is not an argument of {whose}.", fix, near)


def _there_are(names: Iterable[str], nothing: str) -> str:
    first, *rest = sorted(names) or [nothing]
    listed = ", ".join([first, *rest[: MOST_NAMES - 1]])
    return f"There are {listed}{f' and {len(rest) + 1 - MOST_NAMES} more' if len(rest) >= MOST_NAMES else ''}."
