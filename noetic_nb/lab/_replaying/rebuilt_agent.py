"""The agent of a loaded run, rebuilt from the run's own data: its bundle, and the tools that models were offered.

Code is not in a file. A tool needs none as long as the tape answers; a function or a layer of one's own does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.lab._replaying.recorded_tools import offered_tools
from noetic_nb.runs import Run
from noetic_nb.runtime import AgentConfig, load_config
from noetic_nb.steps import Registry, Tool

__all__ = ["rebuilt_agent"]

_KINDS: Final[Mapping[str, str]] = {"fn": "function", "tool": "tool", "layer": "layer", "codec": "codec"}
_MADE_WITH: Final = "Make its configuration and say run.made_with(config)."


def rebuilt_agent(
    run: Run, tools: Mapping[str, Tool], *, rules: Any = None, layers: Sequence[Any] | None = None
) -> AgentConfig:
    """Return the configuration of an agent that is not in this process.

    Parameters
    ----------
    run : Run
        With a bundle.
    tools : mapping of str to Tool
        Tools that are there, by name.
    rules, layers
        What takes the place of recorded ones, which are not needed then.

    Raises
    ------
    NoeticConfigError
        ``NO_AGENT``, naming what cannot be made again.
    """
    bundle = run.bundle
    config = None if bundle is None else bundle.get("config")
    if not isinstance(config, Mapping):
        raise NoeticConfigError(
            "NO_AGENT",
            "The agent of this run is not in this process, and not in the run, so that it cannot be run again.",
            given=run.run_id,
            hint=f"{_MADE_WITH} run.save(path, bundle=True) keeps it in the file.",
        )
    data = {**config, "memory": list(_needed(run, config, rules, layers))}
    known = {**offered_tools(run), **tools}
    registry = Registry(tools=known.values())
    missing = [ref for ref in dict.fromkeys(_references(data)) if not _is_known(ref, registry)]
    if missing:
        named = ", ".join(f"{_KINDS[kind]} {name!r}" for kind, _, name in (ref.partition(":") for ref in missing))
        also = " A tool may be given by tools=, rules by rules=, layers by layers=."
        raise NoeticConfigError(
            "NO_AGENT",
            f"The agent of this run cannot be made again, as a file holds no code: {named}.",
            given=run.run_id,
            hint=_MADE_WITH + also,
            missing=tuple(missing),
        )
    try:
        return load_config(data, registry)
    except (NoeticConfigError, TypeError, ValueError) as error:
        raise NoeticConfigError(
            "NO_AGENT",
            f"The agent of this run cannot be made again from its bundle: {error}",
            given=run.run_id,
            hint=_MADE_WITH,
        ) from error


def _needed(run: Run, config: Mapping[str, Any], rules: Any, layers: Sequence[Any] | None) -> Iterator[Any]:
    """Return the layers that are not replaced: a replaced rule or layer may refer to objects that are not available."""
    entries = config.get("memory", ())
    ids = _ids(run, len(entries))
    wanted = None if layers is None or ids is None else {layer for layer in layers if isinstance(layer, str)}
    for entry, layer_id in zip(entries, ids or (None,) * len(entries), strict=True):
        kind = entry.get("kind") if isinstance(entry, Mapping) else None
        if kind == "steering" and rules is not None:
            options = {**entry.get("options", {}), "rulebook": []}
            options.pop("rules", None)
            yield {**entry, "options": options}
        elif wanted is None or layer_id in wanted or kind in ("steering", "regulation"):
            yield entry


def _ids(run: Run, count: int) -> list[Any] | None:
    match run.meta.get("config"):
        case {"memory": list() | tuple() as described} if len(described) == count:
            return [layer.get("id") for layer in described]
    return None


def _references(data: Any, key: str = "") -> Iterator[str]:
    if isinstance(data, Mapping):
        ref = data.get("$ref")
        if isinstance(ref, str) and ref.partition(":")[0] in _KINDS:
            yield ref
        elif key != "params":  # data of the user's own
            for name, inner in data.items():
                yield from _references(inner, name)
    elif isinstance(data, list | tuple):
        for inner in data:
            yield from _references(inner)


def _is_known(ref: str, registry: Registry) -> bool:
    kind, _, name = ref.partition(":")
    names: Iterable[str] = registry.names(kind)
    return name in names
