"""Converts a rule to the fields of an editor and back, and to Python code; lists its versions. Rules are checked elsewhere."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.markup import escape
from noetic_nb.runs._plain_text import plain
from noetic_nb.steering import RuleBook, SteeringRule
from noetic_nb.steering._predicates.sequence_rules import sequence_rule
from noetic_nb.steering._rules.file_schema import rule_data, rule_text
from noetic_nb.steering._rules.rule import DEFAULT_JUDGE_MODEL, SequenceRule
from noetic_nb.widgets._rules.rule_fields import FORMS, as_count, as_names, as_text, fields_of, names_text
from noetic_nb.widgets.base._table import keyed

# Older changes are in `rulebook.changes`; a complete list would grow with every pause in typing.
VERSIONS_SHOWN: Final = 50
# A longer diff is not readable.
LINES_SHOWN: Final = 400
PAGE_LENGTH: Final = 20_000


def version_rows(rulebook: RuleBook, rule_id: str) -> list[dict[str, Any]]:
    """Return the versions of one rule for a page, newest first; version 0 is the initial content.

    Examples
    --------
    >>> rules = RuleBook()
    >>> _ = rules.when("tool.args.n > 3", id="few")
    >>> rules.disable("few")
    >>> [(row["version"], row["words"]) for row in version_rows(rules, "few")]
    [(2, 'switched off'), (1, 'added')]
    """
    words = {"add": "added", "replace": "edited", "remove": "removed", "enable": "switched on", "undo": "taken back"}
    words["disable"] = "switched off"
    own = [change for change in rulebook.changes if change.rule_id == rule_id and change.change != "move"]
    rows = [{"version": each.version, "words": words[each.change]} for each in reversed(own)]
    if own and own[0].old is not None:
        rows.append({"version": 0, "words": "as it began"})
    return rows[:VERSIONS_SHOWN]


def removed_rules(rulebook: RuleBook) -> list[dict[str, Any]]:
    """Return the removed rules, last removed first, each with the last version that had it."""
    present = {rule.id for rule in rulebook}
    found: dict[str, int] = {}
    for change in reversed(rulebook.changes):
        if change.rule_id not in present:
            found.setdefault(change.rule_id, change.version)
    return [{"id": name, "label": plain(name), "version": found[name]} for name in list(found)[:VERSIONS_SHOWN]]


def versions_data(rulebook: RuleBook, rule_id: str | None) -> dict[str, Any]:
    """Return the versions of one rule, and the removed rules, as a list of a page with its title."""
    own = [] if rule_id is None else version_rows(rulebook, rule_id)
    removed = removed_rules(rulebook)
    versions = f"{len(own)} version{'' if len(own) == 1 else 's'}"
    gone = f", {len(removed)} removed rule{'' if len(removed) == 1 else 's'}" if removed else ""
    label = "no rule" if rule_id is None else plain(rule_id)
    rows = [
        _version_row(
            f"version {row['version']}", f"{row['words']}{' · in force' * (at == 0)}", rule_id, row["version"], at
        )
        for at, row in enumerate(own)
    ]
    rows += [
        _version_row(row["label"], f"removed in version {row['version']}", row["id"], row["version"]) for row in removed
    ]
    return {"head": f"Versions: {versions} of {label}{gone}", "rows": rows}


def _version_row(name: str, words: str, rule_id: str | None, version: int, at: int | None = None) -> dict[str, Any]:
    """Return one entry; `at` is the place among the versions of a rule, of which the first is in force."""
    acts = {"restore": "Bring back"} if at is None else {"compare": "Compare", **({"restore": "Restore"} if at else {})}
    buttons = "".join([f'<button type="button" data-do="{act}">{label}</button>' for act, label in acts.items()])
    html = f"<li>{buttons}<span>{escape(name)} · {escape(words)}</span></li>"
    return keyed(f"{version} {rule_id}", html, rule_id=rule_id, version=version)


def rule_at(rulebook: RuleBook, rule_id: str, version: int) -> SteeringRule:
    """Return a rule as of a version of its book; if removed in that version, the rule before. Raises ``UNKNOWN_VERSION``."""
    own = [change for change in rulebook.changes if change.rule_id == rule_id]
    at = [change for change in own if change.version <= version]
    rule = (at[-1].new or at[-1].old) if at else (own[0].old if own else None)
    if rule is None and version >= 0 and not own and rule_id in rulebook:
        rule = rulebook[rule_id]
    if rule is None:
        raise NoeticConfigError(
            "UNKNOWN_VERSION",
            f"The rule {rule_id!r} did not exist at that time.",
            given=version,
            hint=f"It has the versions {', '.join(str(change.version) for change in own) or 'none'}.",
        )
    return rule


def whole_text(rule: SteeringRule) -> str:
    """Return a whole rule as text; for a Python rule, the other fields come before the source."""
    if rule.source is None:
        return rule_text(rule)
    facts = [f"# {key}: {value}" for key, value in rule_data(rule).items() if key not in ("id", "python")]
    return "\n".join([*facts, rule.source])


def text_diff(old: str, new: str) -> list[list[str]]:
    r"""Return the lines of two texts, each prefixed with ``"-"``, ``"+"`` or ``" "``.

    Examples
    --------
    >>> text_diff("a\nb", "a\nc")
    [[' ', 'a'], ['-', 'b'], ['+', 'c']]
    """
    before, after = plain(old, PAGE_LENGTH).splitlines(), plain(new, PAGE_LENGTH).splitlines()
    lines = [[line[0], line[2:]] for line in difflib.ndiff(before, after) if line[0] in " -+"]
    return lines[:LINES_SHOWN]


_HEAD = (
    "from noetic_nb.steering import LLMEval, RuleBook, SteeringRule, allow, ask, deny, guide\n\nrules = RuleBook()\n"
)


def book_code(rules: Iterable[SteeringRule]) -> str:
    """Return the code of a rule book; running it in an empty notebook creates the same rules in the same order.

    A function with unknown source becomes a comment.

    Examples
    --------
    >>> from noetic_nb.steering import RuleBook
    >>> rules = RuleBook()
    >>> _ = rules.at_most(3, "search")
    >>> print(book_code(rules).splitlines()[-1])
    rules.at_most(3, 'search', id='at-most-3-search')
    """
    return "\n".join([_HEAD, *(rule_code(rule) for rule in rules)])


def rule_code(rule: SteeringRule) -> str:
    """Return the code that adds one rule to the book `rules`.

    Examples
    --------
    >>> rule = SteeringRule(id="large", applies_to="before_tool_call", when="tool.args.n > 3", tools="pay", action="ask")
    >>> print(rule_code(rule))
    rules.when('tool.args.n > 3', id='large', on='before_tool_call', tools='pay', action='ask')
    """
    code = _python(rule) if rule.form == "python" else _call(rule)
    return code if rule.enabled else f"{code}\nrules.disable({rule.id!r})"


def _call(rule: SteeringRule) -> str:
    more = {"on": _one_or_all(rule.applies_to), "tools": _one_or_all(rule.tools), "name": rule.name}
    outcome = {"action": rule.action, "guidance": rule.guidance}
    form, judge = form_of(rule), rule.llm_eval
    # Features that the short form lacks are written as a record.
    if rule.form == "none" or rule.history or (rule.sequence is not None and (rule.name or rule.isolate)):
        return _record(rule)
    if form == "cel":
        isolate = True if rule.isolate == "process" else None
        return _written("when", [rule.when], id=rule.id, **more, **outcome, isolate=isolate)
    if judge is not None:
        if rule.isolate is not None:
            return _record(rule)
        asked = {"mode": judge.mode, "model": judge.model, "when": rule.when}
        return _written("judge", [judge.prompt], id=rule.id, **more, **asked)
    sequence = rule.sequence
    assert sequence is not None
    tools, others = _one_or_all(rule.tools), _one_or_all(sequence.others)
    if sequence.kind == "at_most":
        return _written("at_most", [sequence.count, tools], id=rule.id, **outcome)
    if sequence.kind == "only_from_user":
        trust = list(sequence.trust) or None
        return _written("only_from_user", [tools, *sequence.args], trust=trust, id=rule.id, **outcome)
    method = "never" if sequence.kind == "never_after" else "only"
    return _written(method, [tools], after=others, id=rule.id, **outcome)


def _written(method: str, first: list[Any], **named: Any) -> str:
    parts = [repr(value) for value in first]
    parts += [f"{name}={value!r}" for name, value in named.items() if value is not None]
    return f"rules.{method}({', '.join(parts)})"


def _record(rule: SteeringRule) -> str:
    fields = rule.model_dump(exclude_defaults=True, exclude={"predicate", "source", "enabled"})
    return f"rules.put(SteeringRule({', '.join(f'{name}={value!r}' for name, value in fields.items())}))"


def _one_or_all(names: tuple[str, ...] | None) -> str | list[str] | None:
    return names[0] if names is not None and len(names) == 1 else (None if names is None else list(names))


def _python(rule: SteeringRule) -> str:
    found = _function(rule.source)
    if found is None:
        return f"# {rule.id!r} is a Python function whose text is not known."
    before, function, name, after = found
    options: dict[str, Any] = {"on": _one_or_all(rule.applies_to), "tools": _one_or_all(rule.tools), "name": rule.name}
    options |= {"history": rule.history or None, "isolate": rule.isolate}
    named = "".join(f", {key}={value!r}" for key, value in options.items() if value is not None)
    ids = "" if name == rule.id else repr(rule.id)
    decorator = f"@rules.rule({', '.join(filter(None, [ids, named.removeprefix(', ')]))})"
    judged = ""
    if rule.llm_eval is not None:
        judge = f"LLMEval(**{rule.llm_eval.model_dump()!r})"
        judged = f"rules.put(rules[{rule.id!r}].model_copy(update={{'llm_eval': {judge}}}))"
    return "\n".join(part for part in (before, decorator, function, after, judged) if part) + "\n"


def _function(source: str | None) -> tuple[str, str, str, str] | None:
    """Return the text before a text's only function, the function without decorators, its name, and the rest."""
    try:
        body = ast.parse(source or "").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    functions = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if len(functions) != 1:
        return None
    node = functions[0]
    lines = (source or "").splitlines()
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    last = node.end_lineno or len(lines)
    parts = lines[: first - 1], lines[node.lineno - 1 : last], lines[last:]
    before, function, after = ("\n".join(part).strip("\n") for part in parts)
    return before, function, node.name, after


_TEMPLATE: Final = 'def {name}(call):\n    if call.tool_name == "...":\n        return deny("Say why.")\n'


@dataclass(frozen=True, slots=True)
class Draft:
    """The contents of a rule's fields, all as text."""

    form: str
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The source, condition or prompt; empty if the form has none."""
        return self.values.get("text", "")

    def changed(self, values: Mapping[str, object]) -> Draft:
        """Return a copy with other values in some fields.

        Raises `NoeticConfigError` ``INVALID_FIELD`` for a field that the form lacks, or that is not text.
        """
        for name in values:
            if name not in self.values:
                raise NoeticConfigError(
                    "INVALID_FIELD", "The rule has no such field.", given=name, hint=f"It has {', '.join(self.values)}."
                )
        return replace(self, values={**self.values, **{name: as_text(value, name) for name, value in values.items()}})


def form_of(rule: SteeringRule) -> str:
    """Return the form as shown in the editor: the kind of a sequence rule, ``"judge"`` for a rule with a judge.

    Examples
    --------
    >>> rules = RuleBook()
    >>> form_of(rules.at_most(3, "search")), form_of(rules.judge("Kind?", id="kind", when="true"))
    ('at_most', 'judge')
    """
    if isinstance(rule.decider, SequenceRule):
        return rule.decider.kind
    if rule.form == "none":  # still undecided: it may become a function
        return "python"
    return "judge" if rule.form == "cel" and rule.llm_eval is not None else rule.form


def draft_of(rule: SteeringRule) -> Draft:
    """Return a rule as an editor shows it.

    Examples
    --------
    >>> rule = SteeringRule(id="r", applies_to="before_tool_call", when="tool.name == 'pay'", action="ask")
    >>> draft_of(rule).text, draft_of(rule).values["action"]
    ("tool.name == 'pay'", 'ask')
    """
    form, sequence, judge = form_of(rule), rule.sequence, rule.llm_eval
    found: dict[str, str] = {
        "on": ",".join(sorted(rule.applies_to, reverse=True)),
        "tools": names_text(rule.tools),
        "action": rule.action or "deny",
        "guidance": rule.guidance or "",
        "text": rule.source or "",
    }
    if form == "cel":
        found["text"] = rule.when or ""
    elif form == "judge" and judge is not None:
        found |= {"text": judge.prompt, "mode": judge.mode, "model": judge.model, "condition": rule.when or ""}
    elif sequence is not None:
        found |= {name: names_text(getattr(sequence, name)) for name in ("others", "args", "trust")}
        found["count"] = "" if sequence.count is None else str(sequence.count)
    return Draft(form, {each.name: found[each.name] for each in fields_of(form)})


def rule_of(rulebook: RuleBook, rule: SteeringRule, draft: Draft) -> SteeringRule:
    """Return the rule that the fields describe, without adding it to the book.

    Raises `NoeticConfigError` ``RULE_DOES_NOT_COMPILE`` with a `line`, ``INVALID_RULE`` or ``INVALID_FIELD``.
    """
    values = draft.values
    fields: dict[str, Any] = {name: getattr(rule, name) for name in type(rule).model_fields}
    if "on" in values:
        fields["applies_to"] = as_names(values["on"])
    if "tools" in values:
        fields["tools"] = as_names(values["tools"]) or None
    if "action" in values:
        # A missing action means "deny": showing such a rule must not change it.
        action = None if rule.action is None and values["action"] == "deny" else values["action"]
        fields |= {"action": action, "guidance": values["guidance"] or None}
    if rule.sequence is not None:
        fields["sequence"] = {
            "kind": rule.sequence.kind,
            "count": as_count(values["count"]) if "count" in values else None,
            **{name: as_names(values.get(name, "")) for name in ("others", "args", "trust")},
        }
    elif draft.form == "cel":
        fields["when"] = draft.text
    elif draft.form == "judge":
        judge = {"prompt": draft.text, "mode": values["mode"], "model": values["model"].strip()}
        fields |= {"when": values["condition"].strip() or None, "llm_eval": judge}
    # Unchanged text need not be known: a rule typed at a prompt has no source.
    elif draft.text != (rule.source or ""):
        is_there = rule.id in rulebook and rulebook[rule.id].form in ("python", "none")
        new = (rulebook if is_there else RuleBook([rule])).draft(rule.id, draft.text)
        fields |= {"predicate": new.predicate, "source": new.source}
    return SteeringRule(**fields)


def new_rule(rule_id: str, form: str, *, tool: str = "tool") -> SteeringRule:
    """Return a new rule to start with; it never objects until it is edited and enabled.

    Raises `NoeticConfigError` ``INVALID_RULE`` for an empty name, ``INVALID_FORM`` for a form not in `FORMS`.
    """
    base: dict[str, Any] = {"id": rule_id, "applies_to": "before_tool_call", "enabled": False}
    match form:
        case "cel":
            return SteeringRule(**base, when="tool.name == '...'", guidance="Say why.")
        case "judge":
            judge = {"prompt": "Is this call what the user asked for?", "mode": "async", "model": DEFAULT_JUDGE_MODEL}
            return SteeringRule(**base, llm_eval=judge)
        case "python":
            name = rule_id if rule_id.isidentifier() else "rule"
            blank = SteeringRule(**base, predicate=lambda call: None)
            return RuleBook([blank]).draft(rule_id, _TEMPLATE.format(name=name))
        case "at_most":
            rule = sequence_rule(form, tool, count=3, id=rule_id)
        case "never_after" | "only_after":
            rule = sequence_rule(form, tool, others="another_tool", id=rule_id)
        case "only_from_user":
            rule = sequence_rule(form, tool, id=rule_id)
        case _:
            raise NoeticConfigError(
                "INVALID_FORM", "There is no rule form of this name.", given=form, hint=f"Forms are {', '.join(FORMS)}."
            )
    return rule.model_copy(update={"enabled": False})
