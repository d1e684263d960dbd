"""The ways to write a rule: a function, a condition, a judge, a sequence of calls, or the author of an argument."""

from __future__ import annotations

import inspect
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar, overload

from noetic_nb._core.arguments import explained
from noetic_nb._core.names import LAMBDA, function_name
from noetic_nb.errors import NoeticConfigError
from noetic_nb.steering._predicates.python_source import check_parameter
from noetic_nb.steering._predicates.sequence_rules import sequence_rule
from noetic_nb.steering._rules.rule import DEFAULT_JUDGE_MODEL, Point, SteeringRule

F = TypeVar("F", bound=Callable[..., Any])


class RuleMethods(ABC):
    """The methods of a rule book that make a rule and add it to the book."""

    @abstractmethod
    def find(self, rule_id: str) -> SteeringRule | None:
        """Return the rule with an id, or None if there is none."""

    @abstractmethod
    def put(self, rule: SteeringRule | Mapping[str, Any]) -> SteeringRule:
        """Add a rule, or replace the one with its id."""

    @overload
    def rule(
        self,
        id: str | None = None,
        *,
        on: Point | Iterable[Point],
        tools: str | Iterable[str] | None = None,
        history: bool = False,
        name: str | None = None,
        isolate: Literal["thread"] | bool | None = None,
    ) -> Callable[[F], F]: ...
    @overload
    def rule(
        self,
        id: F,
        *,
        on: Point | Iterable[Point],
        tools: str | Iterable[str] | None = None,
        history: bool = False,
        name: str | None = None,
        isolate: Literal["thread"] | bool | None = None,
    ) -> F: ...
    @explained(
        on="Say when it is evaluated: on='before_tool_call' or on='after_model_call'.",
        positional="The rest has names: rules.rule(f, on='before_tool_call').",
    )
    def rule(
        self,
        id: str | Callable[..., Any] | None = None,
        *,
        on: Point | Iterable[Point],
        tools: str | Iterable[str] | None = None,
        history: bool = False,
        name: str | None = None,
        isolate: Literal["thread"] | bool | None = None,
    ) -> Any:
        """Make a function a rule; running the same cell again replaces the rule in place.

        Parameters
        ----------
        id : str or callable, optional
            By default the function's name. A function itself is added immediately: ``rules.rule(f, on=...)``.
        on : {"before_tool_call", "after_model_call"} or both
            When it is evaluated.
        tools : iterable of str, optional
            Before a call: only for these tools; None means every tool.
        history : bool, default False
            Give the rule the earlier calls of the whole execution tree as ``call.history``.
        isolate : {"thread"} or bool, optional
            Run the function in a thread, so that a hanging one is denied in time.

        Raises
        ------
        NoeticConfigError
            ``INVALID_RULE``, or ``DUPLICATE_RULE_ID`` if one function definition makes several rules with its name.
        """
        rule_id = None if callable(id) else id

        def add(function: F) -> F:
            made = SteeringRule(
                id=rule_id or function_name(function),
                name=name,
                applies_to=on,
                predicate=function,
                tools=tools,
                history=history,
                isolate=isolate,
                source=_source(function),
            )
            check_parameter(made.id, function)
            if rule_id is None:
                self._check_is_new(made)
            self.put(made)
            return function

        return add(id) if callable(id) else add

    def _check_is_new(self, made: SteeringRule) -> None:
        """Refuse a second rule with the same name in one cell; a cell that is run again replaces its rules."""
        old = self.find(made.id)
        if old is None or old.predicate is None or made.predicate is None or old.predicate is made.predicate:
            return
        before, now = _code(old.predicate), _code(made.predicate)
        if before is None or now is None:
            return
        if before is now:
            same = old.model_copy(update={"predicate": made.predicate, "enabled": made.enabled}) == made
            if same and _is_bound_alike(old.predicate, made.predicate):
                return
            why = "The same function definition created it, perhaps in a loop"
        elif before.co_filename == now.co_filename and (_is_cell(now) or made.id == LAMBDA):
            if (before.co_firstlineno, before.co_code) == (now.co_firstlineno, now.co_code):
                return
            why = f"Line {before.co_firstlineno} of this {'cell' if _is_cell(now) else 'file'} created it"
        else:
            return
        raise NoeticConfigError(
            "DUPLICATE_RULE_ID",
            f"A rule {made.id!r} exists already. {why}.",
            given=made.id,
            hint="Give each rule its own name; to replace a rule, name it: rules.rule('name', on=...).",
            rule_id=made.id,
        )

    @explained(
        positional="The condition is first, the rest has names: rules.when('tool.name == \"pay\"', id='no-pay').",
        id="A rule has a name: rules.when('tool.name == \"pay\"', id='no-pay').",
        deny="Write action='deny', guidance='...'.",
        guide="Write action='guide', guidance='...'.",
        ask="Write action='ask', guidance='...'.",
    )
    def when(
        self,
        condition: str,
        *,
        id: str,
        on: Point | Iterable[Point] | None = None,
        tools: str | Iterable[str] | None = None,
        action: Literal["deny", "guide", "ask", "allow"] = "deny",
        guidance: str | None = None,
        isolate: bool = False,
        name: str | None = None,
    ) -> SteeringRule:
        """Add a rule whose condition is a CEL expression.

        Parameters
        ----------
        condition : str
            Over ``tool.name``, ``tool.args``; ``response.text``, ``response.answer``, ``response.items``,
            ``response.usage``; ``history`` (the last 200 calls, each with ``name``, ``args``, ``status``, ``ok``,
            ``output``, ``call_id``, ``execution_id``); ``ctx``.
        id : str
            The rule's name.
        on : {"before_tool_call", "after_model_call"} or both, optional
            After a model call if the condition names ``response``, else before a tool call.
        tools : str or iterable of str, optional
            Only for these tools.
        action : {"deny", "guide", "ask", "allow"}
            The action for a true condition.
        guidance : str, optional
            For the model; placeholders such as ``{tool.args.path}`` are filled in.
        isolate : bool
            Evaluate it in a separate process: required for nested comprehensions and above 4 096 characters.

        Raises
        ------
        NoeticConfigError
            ``RULE_DOES_NOT_COMPILE``, ``INVALID_RULE``, or ``MISSING_PACKAGE`` without the extra ``rules``.

        Examples
        --------
        >>> from noetic_nb.steering import RuleBook
        >>> rules = RuleBook()
        >>> rules.when("tool.args.amount > 100", id="large", tools="pay", action="ask").form
        'cel'
        """
        if not isinstance(condition, str):
            raise NoeticConfigError(
                "INVALID_RULE",
                "A condition must be text in CEL",
                given=condition,
                hint="To make a function a rule, use rules.rule(f, on='before_tool_call').",
            )
        # A guess is enough, because a condition at the wrong point does not compile.
        point: Point = "after_model_call" if "response" in condition else "before_tool_call"
        return self.put(
            SteeringRule(
                id=id,
                name=name,
                applies_to=point if on is None else on,
                when=condition,
                tools=tools,
                action=action,
                guidance=guidance,
                isolate=isolate,
            )
        )

    @explained(
        positional="The prompt is first, the rest has names: rules.judge('Is this polite?', id='polite').",
        id="A rule has a name: rules.judge('Is this polite?', id='polite').",
    )
    def judge(
        self,
        prompt: str,
        *,
        id: str,
        on: Point | Iterable[Point] = "before_tool_call",
        tools: str | Iterable[str] | None = None,
        mode: Literal["sync", "async"] = "sync",
        model: str = DEFAULT_JUDGE_MODEL,
        when: str | None = None,
        name: str | None = None,
    ) -> SteeringRule:
        """Add a rule that a model judges.

        Parameters
        ----------
        prompt : str
            The question for the judge, in plain words.
        id : str
            The rule's name.
        on, tools
            As for `when`.
        mode : {"sync", "async"}
            Wait for the verdict, or deliver it with a later prompt.
        model : str
            The name of the judging model.
        when : str, optional
            A condition in CEL: the judge is called only if it is true.

        Examples
        --------
        >>> from noetic_nb.steering import RuleBook
        >>> RuleBook().judge("Is this polite?", id="polite", on="after_model_call", model="judge").form
        'judge'
        """
        return self.put(
            SteeringRule(
                id=id,
                name=name,
                applies_to=on,
                tools=tools,
                when=when,
                llm_eval={"mode": mode, "prompt": prompt, "model": model},
            )
        )

    @explained(
        after="Say after which: rules.never('send_email', after='read_secrets'); a tool that is never called is "
        "rules.at_most(0, 'send_email').",
        positional="Write rules.never('send_email', after='read_secrets').",
    )
    def never(self, tool: str | Iterable[str], *, after: str | Iterable[str], **more: Any) -> SteeringRule:
        """Add the rule that a tool is never called after certain others, within the layer's `scope`.

        Parameters
        ----------
        tool : str or iterable of str
            The tools that must not be called.
        after : str or iterable of str
            Earlier calls of any of these, whether or not they succeeded.
        **more
            ``id``, ``action`` (``"deny"``, ``"guide"`` or ``"ask"``) and ``guidance``.

        Examples
        --------
        >>> from noetic_nb.steering import RuleBook
        >>> RuleBook().never("send_email", after="read_secrets").id
        'never-send_email-after-read_secrets'
        """
        return self.put(sequence_rule("never_after", tool, others=after, **more))

    @explained(
        after="Say after which: rules.only('pay', after='confirm').",
        positional="Write rules.only('pay', after='confirm').",
    )
    def only(self, tool: str | Iterable[str], *, after: str | Iterable[str], **more: Any) -> SteeringRule:
        """Add the rule that a tool is called only after all of the others have succeeded, within the layer's `scope`.

        Examples
        --------
        >>> from noetic_nb.steering import RuleBook
        >>> RuleBook().only("pay", after="confirm", action="ask").id
        'only-pay-after-confirm'
        """
        return self.put(sequence_rule("only_after", tool, others=after, **more))

    @explained(tool="Say how often and which tool: rules.at_most(3, 'search').")
    def at_most(self, count: int, tool: str | Iterable[str], **more: Any) -> SteeringRule:
        """Add the rule that a tool (or several together) is called at most `count` times, within the layer's `scope`.

        Examples
        --------
        >>> from noetic_nb.steering import RuleBook
        >>> RuleBook().at_most(3, "search").id
        'at-most-3-search'
        """
        if isinstance(count, bool) or not isinstance(count, int) or not _are_names(tool):
            raise NoeticConfigError(
                "INVALID_RULE",
                "at_most takes the count first, and then the tool",
                given=(count, tool),
                hint="Write rules.at_most(3, 'search').",
            )
        return self.put(sequence_rule("at_most", tool, count=count, **more))

    def only_from_user(
        self, tool: str | Iterable[str], *args: str, trust: str | Iterable[str] = (), **more: Any
    ) -> SteeringRule:
        """Add the rule that a tool is called only with values that the user, or a trusted source, wrote.

        Parameters
        ----------
        tool : str or iterable of str
            The tools that must not be called with other values.
        *args : str
            The arguments to check, ``"recipient"`` or ``"invite.email"``; by default all. For a text, ``"body.links"``
            are the web and mail addresses in it.
        trust : str or iterable of str
            Additional trusted authors: a tool, or better ``tool.field``, a key of its JSON or YAML results, or
            ``tool.field[key=value]``, only for items with that value of another key; ``system`` for the instructions,
            ``layer:id`` for texts recalled by a layer. Values that were passed to a tool do not count as written by it.
        **more
            ``id``, ``action`` (``"deny"``, ``"guide"`` or ``"ask"``) and ``guidance``.

        References
        ----------
        .. [1] docs/behaviour/steering.md, "Where a value comes from".

        Examples
        --------
        >>> from noetic_nb.steering import RuleBook
        >>> RuleBook().only_from_user("send_money", "recipient", trust=["get_contacts.email"]).id
        'only-from-user-recipient-of-send_money'
        """
        trust = tuple(trust) if isinstance(trust, Iterable) and not isinstance(trust, str) else trust
        for given in (args, trust):
            if not _are_names(given):
                hint = "Write rules.only_from_user('send_money', 'recipient', trust='get_contacts.email')."
                raise NoeticConfigError("INVALID_RULE", "Name arguments and sources by text.", given=given, hint=hint)
        return self.put(sequence_rule("only_from_user", tool, args=args, trust=trust, **more))


def _are_names(tool: object) -> bool:
    names = [tool] if isinstance(tool, str) else tool
    return isinstance(names, Iterable) and all(isinstance(name, str) for name in names)


def _code(function: Callable[..., Any]) -> Any:
    return getattr(inspect.unwrap(function), "__code__", None)


def _is_cell(code: Any) -> bool:
    """Tell whether code was compiled by a notebook: a cell with another text has another file name."""
    return code.co_filename.startswith("<ipython-input") or "ipykernel_" in code.co_filename


def _is_bound_alike(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Tell whether two functions with the same code have the same defaults and closure values."""
    values, others = _bound(one), _bound(other)
    try:
        return len(values) == len(others) and all(a is b or bool(a == b) for a, b in zip(values, others, strict=True))
    except Exception:  # such as arrays, whose comparison may fail
        return False


def _bound(function: Callable[..., Any]) -> list[Any]:
    inner = inspect.unwrap(function)
    # An empty cell is a name without a value yet.
    cells = [cell for cell in getattr(inner, "__closure__", None) or () if _is_full(cell)]
    return [*[cell.cell_contents for cell in cells], *(getattr(inner, "__defaults__", None) or ())]


def _is_full(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _source(function: Callable[..., Any]) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return None  # typed at a prompt that keeps no text: the rule works, but its source cannot be shown
