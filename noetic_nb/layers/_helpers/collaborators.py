"""Check and call the functions, models and embedders that a layer uses; embedders are tested with two words."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias

from noetic_nb._core.worker_threads import has_threads
from noetic_nb.errors import NoeticError
from noetic_nb.items import Item, assistant_text
from noetic_nb.layers._helpers.embedding import Embedder, EmbedTexts, HashingEmbedder
from noetic_nb.layers._helpers.schemas import option_error
from noetic_nb.memory import ExecutionContext
from noetic_nb.memory._execution_context import HookModelRequest, as_response
from noetic_nb.sync import awaited


async def model_text(
    ctx: ExecutionContext, model: str, items: Sequence[Item], *, purpose: str, instructions: str | None = None
) -> str:
    """Call a model for a layer and return its text; raises ``llm_failed``, with the verb `purpose`, if there is none."""
    if ctx.call_model is None:
        raise NoeticError("llm_failed", f"No model {model!r} to {purpose} with", hint="Pass a function instead.")
    response = as_response(await ctx.call_model(HookModelRequest(model, tuple(items), instructions)))
    return assistant_text(response.items)


Embed: TypeAlias = Callable[[Sequence[str]], Any]  # the result is checked at every call

CODE: Final = "INVALID_LAYER_OPTION"
# Two words, because with one, a function of a single text or one that returns a single vector would pass.
_PROBE: Final = ("one", "two")
_HINT: Final = (
    "An embedder is a function of a list of texts, sync or async, or an object whose `embed` is one; it returns one list of "
    "numbers for each text."
)
# Raised by a wrong function; other errors, such as a missing network, may be gone when the embedder is used.
_MISTAKES: Final = (TypeError, ValueError, AttributeError, LookupError, NameError)


def check_function(given: Any, option: str, takes: str, count: int = 1, *, code: str = CODE) -> None:
    """Check that an option is a function with `count` arguments, or None if left out; `takes` names the arguments."""
    if given is None:
        return
    if not callable(given):
        hint = "Pass the function itself, without calling it."
        raise option_error(f"`{option}` is a function of {takes}.", given, hint, code=code)
    problem = _unfit(given, count)
    if problem:
        hint = "Give it these parameters, or wrap it in a lambda."
        raise option_error(f"`{option}` is called with {takes} only: {problem}.", given, hint, code=code)


def check_whole(least: int = 1, /, **options: Any) -> None:
    """Check that options are integers of at least `least`."""
    for option, given in options.items():
        if isinstance(given, bool) or not isinstance(given, int) or given < least:
            hint = f"Write {option}=3, without quotes."
            raise option_error(f"`{option}` is a whole number, at least {least}.", given, hint)


def check_switch(**options: Any) -> None:
    """Check that options are True or False: the text "no" would switch on."""
    for option, given in options.items():
        if not isinstance(given, bool):
            raise option_error(f"`{option}` must be True or False.", given, f"Write {option}=True, without quotes.")


def as_names(given: Any, option: str, such_as: str = "search") -> tuple[str, ...]:
    """Return an option that is a name, or several."""
    names: tuple[Any, ...] = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    if not all(isinstance(name, str) for name in names):
        raise option_error(f"`{option}` must contain names.", given, f"For example: {option}=[{such_as!r}].")
    return names


def check_score(given: Any) -> None:
    """Check that `min_score` is a cosine."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not -1 <= given <= 1:
        raise option_error("`min_score` must be from -1 to 1.", given, "Write min_score=0.1.")


def check_share(**options: Any) -> None:
    """Check that options are numbers from 0 to 1."""
    for option, given in options.items():
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
            raise option_error(f"`{option}` is from 0 to 1.", given, f"Write {option}=0.5.")


def check_model_name(given: Any, option: str = "model") -> None:
    """Check that an option is the name of a model, not its client."""
    if given is not None and not isinstance(given, str):
        hint = 'Clients belong to the harness: AgentHarness(config, model={"name": client}), and the layer gets "name".'
        raise option_error(f"`{option}` must be the name of a model.", given, hint)


def _unfit(function: Any, count: int = 1) -> str | None:
    """Return why a function cannot be called with `count` arguments, or None if it can or this is unknown."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return None
    try:
        signature.bind(*[None] * count)
    except TypeError as exc:
        return f"its parameters are {signature}, {exc}"
    return None


def as_embedder(given: Embedder | EmbedTexts | None) -> Embed:
    """Return an embedder as a function of texts, `HashingEmbedder` for None; raises ``INVALID_LAYER_OPTION``."""
    if given is None:
        return HashingEmbedder().embed
    function = embed_function(given)
    try:
        found = _first_answer(function)
    except _MISTAKES as exc:
        raise option_error(f"The embedder fails for two words: {type(exc).__name__}: {exc}.", given, _HINT) from exc
    except Exception:
        return function
    if found is not _UNKNOWN:
        try:
            _vectors(found, len(_PROBE))
        except TypeError as exc:
            raise option_error(f"The embedder was tried with two words: {exc}", given, _HINT) from exc
    return function


def embed_function(given: Embedder | EmbedTexts) -> Embed:
    """Return an embedder as a function of texts, untested; raises ``INVALID_LAYER_OPTION``."""
    if inspect.isclass(given):
        raise option_error("Pass an embedder object, not its class.", given, f"Make one: {given.__name__}(...).")
    method: Any = getattr(given, "embed", None)
    candidate: Any = method if callable(method) else given
    if not callable(candidate):
        also = " Pass its method: model.encode." if hasattr(given, "encode") else ""
        raise option_error("This is not an embedder: it has no `embed` and is not a function.", given, _HINT + also)
    problem = _unfit(candidate)
    if problem:
        raise option_error(f"An embedder is called with a list of texts only: {problem}.", given, _HINT)
    function: Embed = candidate
    return function


_UNKNOWN: Final = object()


def _first_answer(function: Embed) -> Any:
    """Return the test answer of an embedder, `_UNKNOWN` if that needs an event loop."""
    found = function(list(_PROBE))
    if not hasattr(found, "__await__"):
        return found
    if not inspect.iscoroutine(found):
        return _UNKNOWN
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _without_loop(found)
    if not has_threads():
        found.close()
        return _UNKNOWN
    # In another thread, because the running loop would be left with unfinished work.
    with ThreadPoolExecutor(1) as beside:
        return beside.submit(_without_loop, found).result()


def _without_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    return _UNKNOWN


def _vectors(found: Any, count: int) -> list[list[float]]:
    """Return vectors as lists of floats; raises `TypeError` unless there are `count` of one length, all finite."""
    wanted = f"it must return {count} lists of numbers, all of one length"
    if isinstance(found, str | bytes | dict) or not hasattr(found, "__iter__"):
        raise TypeError(f"{wanted}, not {type(found).__name__}: {found!r:.80}.")
    rows = list(found)
    if len(rows) != count:
        raise TypeError(f"{wanted}, one for each text, and returned {len(rows)}.")
    vectors: list[list[float]] = []
    for row in rows:
        if isinstance(row, str | bytes | dict) or not hasattr(row, "__iter__"):
            raise TypeError(f"{wanted}, and one of them is {type(row).__name__}: {row!r:.80}.")
        try:
            vectors.append([float(x) for x in row])
        except (TypeError, ValueError) as exc:
            raise TypeError(f"{wanted}, and one of them holds something else: {exc}.") from exc
    lengths = sorted({len(vector) for vector in vectors})
    if len(lengths) > 1 or lengths == [0]:
        raise TypeError(f"{wanted}, and theirs are {', '.join(map(str, lengths))}.")
    if not all(all(map(math.isfinite, vector)) for vector in vectors):
        raise TypeError(f"{wanted}, and one of them is not finite.")
    return vectors


async def embed(embedder: Embed, texts: Sequence[str]) -> list[list[float]]:
    """Call an embedder; raises ``tool_failed`` if it fails or does not return a vector of finite numbers per text."""
    if not texts:
        return []

    def failed(problem: str, hint: str) -> NoeticError:
        name = getattr(embedder, "__qualname__", type(embedder).__name__)
        return NoeticError("tool_failed", f"The embedder {problem}", given=name, hint=hint)

    try:
        found = await awaited(embedder(texts))
    except NoeticError:  # already has a clear message
        raise
    except Exception as exc:
        hint = "Nothing was embedded; the messages are tried again with the next one."
        raise failed(f"failed for {len(texts)} texts: {type(exc).__name__}: {exc}", hint) from exc
    try:
        return _vectors(found, len(texts))
    except TypeError as exc:
        hint = "Return one vector of finite numbers for each text."
        raise failed(f"was called with {len(texts)} texts: {exc}", hint) from exc
