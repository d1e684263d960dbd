"""The cell magic ``%%rule``: a cell that defines a rule. Load it with ``%load_ext noetic_nb.widgets``.

The cell contains a Python function, a CEL condition (``--cel``) or the prompt of a judge (``--judge MODEL``). Running
it again replaces the rule in place; if the cell fails, the last good version stays in force.
"""

from __future__ import annotations

import argparse
import inspect
import shlex
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from noetic_nb.errors import NoeticConfigError
from noetic_nb.steering import RuleBook, SteeringRule
from noetic_nb.steering._predicates.python_source import compile_predicate

POINTS: Final = ("before_tool_call", "after_model_call")


class _Parser(argparse.ArgumentParser):
    """Raises instead of exiting: a typing error must not end the kernel."""

    def error(self, message: str) -> NoReturn:
        raise NoeticConfigError("INVALID_MAGIC", f"%%rule: {message}", hint=self.format_usage().strip())


def _parser() -> _Parser:
    parser = _Parser(prog="%%rule", add_help=False)
    parser.add_argument("book", help="name of the rule book")
    parser.add_argument("id", nargs="?", help="name of the rule; of a function by default its own")
    parser.add_argument("--on", action="append", choices=POINTS)
    parser.add_argument("--tools", help="tools, separated by commas")
    parser.add_argument("--action", choices=["deny", "guide", "ask", "allow"])
    parser.add_argument("--guidance")
    parser.add_argument("--isolate", action="store_true")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--cel", action="store_true", help="the cell is a condition")
    form.add_argument("--judge", metavar="MODEL", help="the cell is the prompt of a judge")
    parser.add_argument("--mode", choices=["sync", "async"], default="sync")
    return parser


def _book(name: str, names: Mapping[str, Any]) -> RuleBook:
    found = names.get(name)
    if not isinstance(found, RuleBook):
        books = ", ".join(sorted(key for key, value in names.items() if isinstance(value, RuleBook))) or "none"
        hint = f"There are {books}."
        raise NoeticConfigError("NOT_A_RULE_BOOK", f"%%rule: {name!r} is not a rule book.", given=name, hint=hint)
    return found


def rule_cell(line: str, cell: str, names: Mapping[str, Any]) -> SteeringRule:
    r"""Add the rule in a cell to its rule book.

    `line` has the rule book, options, and optionally the rule's name; `names` are available in the cell. Raises
    ``INVALID_MAGIC``, ``NOT_A_RULE_BOOK``, ``RULE_DOES_NOT_COMPILE`` or ``INVALID_RULE``; then nothing changes.

    Examples
    --------
    >>> rules = RuleBook()
    >>> rule_cell("rules large --cel --tools pay --action ask", "tool.args.amount > 100", {"rules": rules}).form
    'cel'
    >>> rule_cell("rules", "def quiet(call):\n    return deny('Quiet.')", {"rules": rules}).id
    'quiet'
    """
    given = _parser().parse_args(shlex.split(line))
    book = _book(given.book, names)
    tools = None if given.tools is None else tuple([tool.strip() for tool in given.tools.split(",") if tool.strip()])
    if given.cel or given.judge:
        if given.id is None:
            raise NoeticConfigError("INVALID_MAGIC", "%%rule: this form needs a name.", hint="%%rule BOOK NAME --cel")
        if given.judge:
            return book.judge(
                cell.strip(),
                id=given.id,
                on=given.on or ("before_tool_call",),
                tools=tools,
                mode=given.mode,
                model=given.judge,
            )
        return book.when(
            cell.strip(),
            id=given.id,
            on=given.on,
            tools=tools,
            action=given.action or "deny",
            guidance=given.guidance,
            isolate=given.isolate,
        )
    # Compile before changing the book: if the cell fails, the last good version stays in force.
    predicate = compile_predicate(given.id or "rule", cell, names)
    return book.put(
        SteeringRule(
            id=given.id or predicate.__name__,
            applies_to=tuple(given.on or ("before_tool_call",)),
            tools=tools,
            predicate=predicate,
            history="history" in inspect.unwrap(predicate).__code__.co_names,
            isolate="thread" if given.isolate else None,
            source=cell,
        )
    )


def load_ipython_extension(shell: Any) -> None:
    """Register ``%%rule``."""

    def rule(line: str, cell: str) -> SteeringRule:
        return rule_cell(line, cell, shell.user_ns)

    shell.register_magic_function(rule, magic_kind="cell", magic_name="rule")
