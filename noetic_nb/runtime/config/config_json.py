"""Agent configurations as JSON and back, with references for what JSON cannot hold; see `noetic_nb.steps.step_json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.runtime.config.config import AgentConfig
from noetic_nb.steps import Registry
from noetic_nb.steps.step_json import dump_record, resolved

__all__ = ["dump_config", "load_config"]

# Keys whose values hold neither steps nor references in the places where steps do.
_OWN: Final = frozenset({"params", "itemSchemas", "item_schemas"})


def dump_config(config: AgentConfig, registry: Registry | None = None) -> dict[str, Any]:
    """Return a configuration as JSON data.

    Raises
    ------
    NoeticConfigError
        ``UNREGISTERED_FUNCTION`` and the like, saying where.

    Examples
    --------
    >>> from noetic_nb.steps import step
    >>> dump_config(AgentConfig(name="desk", step=step.llm("ask", model="m")))
    {'name': 'desk', 'step': {'id': 'ask', 'kind': 'llm', 'model': 'm'}}
    """
    return dump_record(config, registry or Registry(), config.name)


def load_config(data: Mapping[str, Any] | str, registry: Registry | None = None) -> AgentConfig:
    """Return the configuration that `dump_config` wrote, or a person.

    Raises
    ------
    NoeticConfigError
        ``INVALID_AGENT_CONFIG``, ``UNKNOWN_FUNCTION_REFERENCE`` and the like, or what a step raises.

    Examples
    --------
    >>> load_config('{"name": "desk", "step": {"kind": "llm", "id": "ask", "model": "m"}}').step.model
    'm'
    """
    if isinstance(data, str):
        try:
            data = json.loads(data)
        except (ValueError, RecursionError) as exc:
            raise NoeticConfigError("INVALID_AGENT_CONFIG", f"This is no JSON: {exc}", given=data) from exc
    if not isinstance(data, Mapping):
        raise NoeticConfigError("INVALID_AGENT_CONFIG", "A configuration is a mapping.", given=data)
    names = registry or Registry()
    own = {key: data[key] for key in _OWN & data.keys()}
    fields = resolved({key: value for key, value in data.items() if key not in own}, names)
    return AgentConfig(**fields, **{key: _own(key, value, names) for key, value in own.items()})


def _own(key: str, value: Any, registry: Registry) -> Any:
    """Resolve what is no step: parameters are data, whatever they look like, and item schemas are schemas."""
    if key == "params" or not isinstance(value, Mapping):
        return value
    return {
        category: [resolved({"schema": schema}, registry)["schema"] for schema in schemas]
        if isinstance(schemas, list | tuple)
        else schemas
        for category, schemas in value.items()
    }
