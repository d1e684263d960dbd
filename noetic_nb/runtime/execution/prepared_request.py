"""What the requests of an execution have in common, as a run records it."""

from __future__ import annotations

from noetic_nb.events import RequestPrepared
from noetic_nb.items import freeze
from noetic_nb.items.frozen import FrozenDict
from noetic_nb.memory import ProjectionPolicy
from noetic_nb.runtime.context.context import Context
from noetic_nb.runtime.context.engine import Engine
from noetic_nb.steps import LLMStep
from noetic_nb.steps.tools import ToolSet
from noetic_nb.tokenizers.learning import CalibratedTokenizer
from noetic_nb.tokens import Tokenizer, known_error, tokenizer_name

__all__ = ["emit_prepared"]


def emit_prepared(
    engine: Engine,
    ctx: Context,
    step: LLMStep,
    policy: ProjectionPolicy,
    model: str,
    instructions: str,
    tools: ToolSet,
    tokenizer: Tokenizer,
) -> None:
    """Put what an llm step is about to send, and how its requests are planned, into the run."""
    assert engine.sink is not None
    schema = None if step.output is None else step.output.json_schema
    engine.sink.emit(
        RequestPrepared(
            ctx.where,
            engine.clock.now_ms(),
            step.id,
            model,
            instructions,
            tools.offered,
            _NONE if step.params is None else freeze(step.params.model_dump(exclude_none=True)),
            None if schema is None else freeze(schema),
            policy.overflow,
            policy.window_size,
            tuple([(layer.id, *layer.limits) for layer in engine.stack.layers]),
            tokenizer_name(tokenizer),
            policy.order,
            tuple([layer.id for layer in engine.stack.layers if layer.placement == "suffix"]),
            known_error(tokenizer),
            freeze(tokenizer.recorded) if isinstance(tokenizer, CalibratedTokenizer) else None,
        )
    )


_NONE = FrozenDict()
