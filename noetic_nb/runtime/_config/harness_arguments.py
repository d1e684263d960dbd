"""Check the arguments of a harness as soon as they are given, so that a mistake does not surface in the middle of a turn.

The error for an unsuitable argument says what to write instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from os import PathLike
from typing import Any, Final

from noetic_nb._core.arguments import closest
from noetic_nb._core.names import keys
from noetic_nb.errors import NoeticConfigError
from noetic_nb.runtime._config.config import AgentConfig
from noetic_nb.tokens import Tokenizer, estimate_tokens

_STORE: Final = ("get", "set", "delete", "list")
_CLOCK: Final = ("now_ms", "monotonic_ms")
_SAMPLE: Final = "eight ch"
# Names that other libraries use for `execute`.
_OTHER_NAMES: Final = keys("ask ainvoke arun astream call chat complete generate invoke predict run_sync send")
# Hints for unsuitable calls, by method and argument.
HINTS: Final[Mapping[str, Mapping[str, str]]] = {
    "__init__": {
        "positional": "Name the model: AgentHarness(config, model=client).",
        "config": "Pass the agent first: AgentHarness(AgentConfig(name='desk', step=react(model='gpt-4o')), model=client).",
        "memory": "Layers belong to the agent: AgentConfig(memory=[...]).",
        "step": "The step belongs to the agent: AgentConfig(name='desk', step=...).",
        "tools": "Tools belong to a step, react(tools=[...]), or to the agent, AgentConfig(tools=[...]).",
        "rules": "Rules belong to the agent: AgentConfig(memory=[rules]).",
        "limits": "Limits belong to the agent, AgentConfig(limits=...), or to a turn, execute(..., limits=...).",
    },
    "execute": {
        "positional": "Name the thread: execute('Hi', thread_id='ann').",
        "thread": "Write thread_id='ann'.",
        "text_or_items": "Pass the message: execute('Hi').",
    },
    "stream": {"positional": "Name the thread: stream('Hi', thread_id='ann').", "thread": "Write thread_id='ann'."},
    "run": {
        "value": "It runs a step in an open execution; a message is sent with `await harness.execute('Hi')`.",
        "ctx": "It runs a step in an open execution: async with harness.execution() as ctx.",
    },
    "feedback": {"quality": "Name the grade: harness.feedback('ann', quality=0.5)."},
    "correct": {"message": "Name the thread first: harness.correct('default', 'Refunds take 14 days.')."},
    "seed": {"items_or_run": "Name the thread first: harness.seed('ann', items)."},
}


def check_arguments(
    config: Any, storage: Any, clock: Any, ids: Any, tokenizer: Any, approve: Any, diagnostic: Any
) -> None:
    """Check every argument except the model; raises `NoeticConfigError` ``INVALID_AGENT_CONFIG`` or ``INVALID_OPTION``."""
    if not isinstance(config, AgentConfig):
        hint = "Write AgentHarness(AgentConfig(name='desk', step=...), model=client)."
        if isinstance(config, Mapping):
            hint = "Read it first: AgentHarness(load_config(data), model=client)."
        raise NoeticConfigError("INVALID_AGENT_CONFIG", "A harness needs an AgentConfig.", given=config, hint=hint)
    path_hint = "Write storage=SQLiteStorage('desk.db')." if isinstance(storage, str | PathLike) else ""
    _has(storage, "storage", "a store with async get, set, delete and list", _STORE, path_hint)
    _has(clock, "clock", "a clock with now_ms and monotonic_ms", _CLOCK, "Write one as a class, or leave it out.")
    _has(ids, "ids", "a source of ids with new(kind)", ("new",), "Write one as a class, or leave it out.")
    for option, given, takes in (
        ("approve", approve, "a tool's name and its arguments"),
        ("diagnostic", diagnostic, "a layer's id, a hook and an error"),
    ):
        if given is not None and not callable(given):
            hint = f"Pass a function: {option}=lambda ..., or leave it out."
            raise _refused(f"`{option}` is a function of {takes}.", given, hint)
    if tokenizer is None or isinstance(tokenizer, str) or hasattr(tokenizer, "observe"):
        return
    if not callable(tokenizer):
        hint = "Name one, tokenizer='gpt-4.1' or 'calibrated', pass a function, or leave it out."
        raise _refused(
            "`tokenizer` is a name, or a function of a text that returns its number of tokens.", tokenizer, hint
        )
    count = tokenizer(_SAMPLE)
    if isinstance(count, bool) or not isinstance(count, int | float):
        hint = "A function that returns the tokens themselves is counted: tokenizer=lambda text: len(encode(text))."
        raise _refused(f"`tokenizer` returns a number of tokens, not {type(count).__name__}.", count, hint)


def _has(given: Any, option: str, what: str, methods: tuple[str, ...], hint: str) -> None:
    if given is None:
        return
    if inspect.isclass(given):
        raise _refused(f"`{option}` is {what}, and this is its class.", given, f"Make one: {given.__name__}(...).")
    missing = [name for name in methods if not callable(getattr(given, name, None))]
    if missing:
        named = f"It has no {', '.join(missing)}."
        raise _refused(f"`{option}` is {what}.", given, f"{named} {hint}".strip())


def _refused(what: str, given: object, hint: str) -> NoeticConfigError:
    return NoeticConfigError("INVALID_OPTION", what, given=given, hint=hint)


def counter_of(given: Any) -> Tokenizer:
    """Return the tokenizer for a name, a calibration or a function; the default estimate for None."""
    if given is None or given is estimate_tokens:
        return estimate_tokens
    from noetic_nb.tokenizers._named import as_tokenizer  # most agents count with the estimate

    found: Tokenizer = as_tokenizer(given)
    return found


def filesystem_of(given: Any) -> Any:
    """Return the filesystem for a folder or a URL, None for None."""
    if given is None:
        return None
    from noetic_nb._core.filesystem import as_filesystem  # imports fsspec, which most agents do not need

    return as_filesystem(given)


def unknown_name(owner: type, name: str) -> str:
    """Return the message for a method that a harness does not have."""
    # Displays probe every object for their own underscore methods: those are not misspellings.
    hint = "" if name[0] == "_" else closest(name, [one for one in dir(owner) if not one.startswith("_")])
    if name in _OTHER_NAMES:
        hint = "Send a message with `await harness.execute('Hi')`, or `nn.run_sync(harness.execute('Hi'))` in a script."
    return f"{owner.__name__!r} object has no attribute {name!r}. {hint}".strip()
