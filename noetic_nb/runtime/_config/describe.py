"""A configuration as plain data, for the head of a run: settings, no live objects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from noetic_nb.items import thaw
from noetic_nb.models._client import ModelClient
from noetic_nb.runtime._config.config import AgentConfig
from noetic_nb.steps import LLMStep, LoopStep, Step, ToolStep
from noetic_nb.steps._traverse import inner_steps


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _step(step: Step | None, outer: tuple[int, ...] = ()) -> Any:
    if step is None:
        return None
    about: dict[str, Any] = {"kind": step.kind, "id": step.id}
    if id(step) in outer:
        return about  # it contains itself; the steps inside it are listed already
    if isinstance(step, LLMStep):
        about["model"] = step.model if isinstance(step.model, str) else "function"
        if isinstance(step.instructions, str):
            about["instructions"] = step.instructions
        if isinstance(step.tools, tuple):
            about["tools"] = [tool.name for tool in step.tools]
    elif isinstance(step, LoopStep):
        about["until"] = step.until.model_dump(
            by_alias=True, fallback=lambda value: getattr(value, "__name__", "function")
        )
    elif isinstance(step, ToolStep):
        about["tool"] = step.tool.name
    inner = inner_steps(step)
    if inner:
        about["steps"] = [_step(one, (*outer, id(step))) for one in inner]
    return about


def describe(config: AgentConfig, models: ModelClient | Mapping[str, ModelClient] | None) -> dict[str, Any]:
    """Return the set-up of an agent; callables by name only."""
    policy = config.projection.model_dump(by_alias=True)
    layers = [
        {
            "id": layer.id,
            "slot": float(layer.slot),
            "scope": layer.scope,
            "budget": dict(layer.budget) if isinstance(layer.budget, Mapping) else layer.budget,
            "hooks": list(layer.hooks.names()),
            **({"placement": layer.placement} if layer.placement else {}),
        }
        for layer in config.memory
    ]
    names = list(models) if isinstance(models, Mapping) else [] if models is None else [type(models).__name__]
    return {
        "config": {
            "name": config.name,
            "step": _step(config.step),
            "memory": layers,
            "tools": [tool.name for tool in config.tools],
            **({"params": thaw(config.params)} if config.params else {}),
            "projection": {key: _number(v) if isinstance(v, float) else v for key, v in policy.items()},
        },
        "models": names,
    }
