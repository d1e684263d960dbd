"""How long a layer's state lives: for one execution, one thread, one resource (a person, a project), or for all."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, get_args

from noetic_nb.errors import NoeticConfigError

__all__ = ["GLOBAL_KEY", "SCOPES", "MemoryScope", "resolve_scope_key"]

MemoryScope: TypeAlias = Literal["execution", "thread", "resource", "global"]

SCOPES: Final[tuple[str, ...]] = get_args(MemoryScope)

GLOBAL_KEY: Final = "__global__"
"""The scope key shared by all threads."""


class HasIds(Protocol):
    """The ids that a scope is resolved against."""

    @property
    def execution_id(self) -> str:
        """Id of the execution."""
        ...

    @property
    def thread_id(self) -> str:
        """Id of the thread."""
        ...

    @property
    def resource_id(self) -> str | None:
        """Id of the person, tenant or project, if known."""
        ...


class ScopeIds(NamedTuple):
    """The ids from which the key of a scope is made."""

    execution_id: str
    thread_id: str
    resource_id: str | None


def resolve_scope_key(scope: MemoryScope, ctx: HasIds) -> str:
    """Return the key that separates one scope from another.

    Parameters
    ----------
    scope : {"execution", "thread", "resource", "global"}
        The extent of the state.
    ctx : object with ``execution_id``, ``thread_id`` and ``resource_id``
        The execution that the key is for.

    Returns
    -------
    str
        An unescaped id. An unknown resource falls back to the thread; an empty resource id counts as known.

    Raises
    ------
    NoeticConfigError
        ``UNKNOWN_SCOPE``.

    References
    ----------
    .. [1] docs/behaviour/memory.md, "Scopes and storage".

    Examples
    --------
    >>> from noetic_nb.memory import ExecutionContext
    >>> ctx = ExecutionContext(execution_id="e1", thread_id="t1")
    >>> resolve_scope_key("resource", ctx), resolve_scope_key("global", ctx)
    ('t1', '__global__')
    """
    # A chain rather than a table: this runs for every layer at every step, and threads are most frequent.
    if scope == "thread":
        return ctx.thread_id
    if scope == "execution":
        return ctx.execution_id
    if scope == "resource":
        # An empty id is an id: only None means that there is no resource.
        return ctx.thread_id if ctx.resource_id is None else ctx.resource_id
    if scope == "global":
        return GLOBAL_KEY
    raise unknown_scope(scope)


def unknown_scope(scope: object) -> NoeticConfigError:
    """Return the error for an unknown scope."""
    hint = f"Use one of {', '.join(SCOPES)}."
    return NoeticConfigError("UNKNOWN_SCOPE", "There is no memory scope of this name.", given=scope, hint=hint)
