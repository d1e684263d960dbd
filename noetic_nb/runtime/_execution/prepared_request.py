"""The shared parts of the requests of an execution, as a run records them."""

from __future__ import annotations

from operator import is_
from typing import Any

from noetic_nb.events import RequestPrepared
from noetic_nb.items import freeze
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.memory import MemoryLayer, ProjectionPolicy
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.runtime._context.running_execution import RunningExecution
from noetic_nb.steps import LLMStep
from noetic_nb.steps._tools import ToolSet
from noetic_nb.tokenizers._learning import CalibratedTokenizer
from noetic_nb.tokens import Tokenizer, known_error, tokenizer_name

__all__ = ["emit_prepared"]


def emit_prepared(
    engine: Engine,
    ctx: RunningExecution,
    step: LLMStep,
    policy: ProjectionPolicy,
    model: str,
    instructions: str,
    tools: ToolSet,
    tokenizer: Tokenizer,
) -> None:
    """Put the next request of an llm step, and the way its requests are planned, into the run."""
    assert engine.sink is not None
    # The same at every turn of most conversations; read anew for another step, set of tools or of layers.
    told = (step, tools.specs, engine.stack.layers)
    if engine.prepared is None or not all(map(is_, engine.prepared[0], told)):
        engine.prepared = told, _parts(step, tools, engine.stack.layers)
    offered, params, schema, limits, suffixes = engine.prepared[1]
    prepared = RequestPrepared(
        ctx.where,
        engine.clock.now_ms(),
        step.id,
        model,
        instructions,
        offered,
        params,
        schema,
        policy.overflow,
        policy.window_size,
        limits,
        tokenizer_name(tokenizer),
        policy.order,
        suffixes,
        known_error(tokenizer),
        freeze(tokenizer.recorded) if isinstance(tokenizer, CalibratedTokenizer) else None,
    )
    engine.sink.emit(prepared)


def _parts(step: LLMStep, tools: ToolSet, layers: tuple[MemoryLayer, ...]) -> tuple[Any, ...]:
    schema = None if step.output is None else step.output.json_schema
    return (
        tools.offered,
        _NONE if step.params is None else freeze(step.params.model_dump(exclude_none=True)),
        None if schema is None else freeze(schema),
        tuple([(layer.id, *layer.limits) for layer in layers]),
        tuple([layer.id for layer in layers if layer.placement == "suffix"]),
    )


_NONE = FrozenDict()
