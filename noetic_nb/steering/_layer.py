"""Steering as a memory layer: rules before tool calls and after model responses, and a ledger of their decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, get_args

from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory._built_in import built_in
from noetic_nb.memory._layer import MemoryLayer, Slot
from noetic_nb.memory.scope import MemoryScope
from noetic_nb.steering._evaluation.evaluate import OnError, OnUnparseable, Policy
from noetic_nb.steering._evaluation.judging import LAYER_ID
from noetic_nb.steering._hooks import SteeringHooks
from noetic_nb.steering._rulebook.rulebook import RuleBook
from noetic_nb.steering._rules.rule import SteeringRule

# Recall only delivers late verdicts, so little is enough.
RECALL_BUDGET: Final = {"min": 0, "max": 500}
TIMEOUTS_MS: Final = {"before_tool_call": 5_000, "after_model_call": 10_000}


@built_in
def steering(
    rulebook: RuleBook | Iterable[SteeringRule | Mapping[str, Any]] | None = None,
    *,
    rules: Iterable[SteeringRule | Mapping[str, Any]] | None = None,
    max_ledger_entries: int = 100,
    max_retries: int = 1,
    scope: MemoryScope = "execution",
    on_error: OnError = "deny",
    on_unparseable: OnUnparseable = "allow",
    timeouts: Mapping[str, float] | None = None,
    late_verdicts: bool = True,
) -> MemoryLayer:
    """Make the layer that enforces rules.

    Parameters
    ----------
    rulebook : RuleBook or iterable of rules, optional
        A rule book is read anew at each evaluation, so edits take effect at the next one.
    rules : iterable of SteeringRule or mapping, optional
        Fixed rules, instead.
    max_ledger_entries : int
        How many entries the ledger keeps; 0 keeps none.
    max_retries : int
        How often a judge is called again after an answer that cannot be read.
    scope : {"execution", "thread", "resource", "global"}
        How long the ledger lives, and how far back `call.history` goes: to the beginning of the execution tree (a turn), of
        the thread, or further.
    on_error : {"deny", "allow", "raise"}
        What a rule means that raises, hangs or returns nonsense.
    on_unparseable : {"allow", "deny"}
        What a judge means whose answer cannot be read.
    timeouts : mapping of str to float, optional
        Milliseconds for ``before_tool_call`` (5 000) and ``after_model_call`` (10 000).
    late_verdicts : bool, default True
        Let asynchronous judges answer later. Without, they are waited for like the others: where no prompt will deliver
        what they say.

    Returns
    -------
    MemoryLayer
        With id ``"steering"``; its state is ``{"ledger": [...], "pendingAsync": [...]}``.

    Raises
    ------
    NoeticConfigError
        ``INVALID_STEERING`` or ``INVALID_RULE``.

    References
    ----------
    .. [1] docs/behaviour/steering.md.

    Examples
    --------
    >>> layer = steering(rules=[{"id": "none", "applies_to": ["before_tool_call"]}])
    >>> layer.id, int(layer.slot), layer.scope
    ('steering', 90, 'execution')
    """
    if (rulebook is None) == (rules is None):
        raise NoeticConfigError(
            "INVALID_STEERING", "steering takes a rule book, or rules=[...].", given=(rulebook, rules), hint="Pass one."
        )
    book = rulebook if isinstance(rulebook, RuleBook) else RuleBook(rulebook or rules or ())
    book.mark_used()
    policy = _checked_policy(Policy(on_error, on_unparseable, max_retries, late_verdicts), max_ledger_entries)
    limits = {**TIMEOUTS_MS, **(timeouts or {})}
    return MemoryLayer(
        id=LAYER_ID,
        slot=Slot.STEERING,
        scope=scope,
        budget=RECALL_BUDGET,
        hooks=SteeringHooks(book, max_ledger_entries, policy, scope).memory_hooks(),
        timeouts=limits,
        # Without this a layer that cannot be initialised would be left out, and nothing would be enforced.
        enforces=True,
        reviews_responses=lambda: any(rule.enabled and "after_model_call" in rule.applies_to for rule in book.snapshot),
        on_steering_error=on_error,
    )


def rulebook_of(layer: MemoryLayer) -> RuleBook | None:
    """Return the rule book that a layer evaluates; None for a layer that is not of `steering`."""
    owner = getattr(layer.hooks.before_tool_call, "__self__", None)
    return owner.book if isinstance(owner, SteeringHooks) else None


def policy_of(layer: MemoryLayer) -> Policy | None:
    """Return the meaning of failures for a layer of `steering`; None for any other layer."""
    owner = getattr(layer.hooks.before_tool_call, "__self__", None)
    return owner.policy if isinstance(owner, SteeringHooks) else None


RuleBook.make_layer = staticmethod(steering)


def _checked_policy(policy: Policy, max_ledger_entries: int) -> Policy:
    for name, value, known in (
        ("on_error", policy.on_error, get_args(OnError)),
        ("on_unparseable", policy.on_unparseable, get_args(OnUnparseable)),
    ):
        if value not in known:
            raise NoeticConfigError(
                "INVALID_STEERING", f"There is no such {name}.", given=value, hint=f"Use one of {', '.join(known)}."
            )
    for name, count in (("max_ledger_entries", max_ledger_entries), ("max_retries", policy.max_retries)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise NoeticConfigError("INVALID_STEERING", f"{name} is a number >= 0.", given=count)
    return policy
