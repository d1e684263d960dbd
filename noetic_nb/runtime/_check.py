"""Check a configuration before it runs: settings that cannot work, and settings that are probably mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from noetic_nb.errors import NoeticConfigError
from noetic_nb.memory._layer import MemoryLayer, budget_range
from noetic_nb.models._client import ModelClient
from noetic_nb.runtime._config.config import AgentConfig
from noetic_nb.runtime._context.engine import Engine
from noetic_nb.steering._evaluation.rule_reading import unknown_targets
from noetic_nb.steering._rulebook.rulebook import unused_books
from noetic_nb.steps import SpawnStep, Step
from noetic_nb.steps._records import llm_steps, steps_within
from noetic_nb.steps._tools import DESCRIBE, lacking


@dataclass(frozen=True, slots=True)
class SetupFinding:
    """One finding: an `error` will fail, a `warning` may surprise you, a `note` is harmless."""

    level: Literal["error", "warning", "note"]
    code: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.level}: {self.message} {self.hint}".strip()


def find(engine: Engine) -> tuple[SetupFinding, ...]:
    """Return the findings about an engine's configuration, worst first."""
    config = engine.config
    found = [
        *_steps(config, engine.models),
        *_tools(engine),
        *_targets(engine),
        *_judges(engine),
        *_unused(),
        *_layers(config),
        *_dropped(config),
        *_saved(config),
    ]
    order = {"error": 0, "warning": 1, "note": 2}
    return tuple(sorted(found, key=lambda finding: order[finding.level]))


def _steps(config: AgentConfig, models: ModelClient | Mapping[str, ModelClient] | None) -> Iterator[SetupFinding]:
    if config.step is None:
        yield SetupFinding("error", "NO_STEP_CONFIGURED", "The agent has no step.", "Pass step=... to AgentConfig.")
    for step in llm_steps(config.step):
        if isinstance(models, Mapping) and isinstance(step.model, str) and step.model not in models:
            known = ", ".join(map(repr, models)) or "none"
            yield SetupFinding(
                "error", "UNKNOWN_MODEL", f"Step {step.id!r} asks model {step.model!r}.", f"The harness has {known}."
            )


def _tools(engine: Engine) -> Iterator[SetupFinding]:
    seen: set[str] = set()
    for step in llm_steps(engine.config.step):
        try:
            tools = engine.setups.tools(step)
        except NoeticConfigError as exc:
            yield SetupFinding("error", exc.code, exc.what, exc.hint)
            continue
        for tool in tools.tools:
            if (lack := lacking(tool)) and tool.name not in seen:
                seen.add(tool.name)
                yield SetupFinding("warning", "UNDESCRIBED_TOOL", f"Tool {tool.name!r} {lack}.", DESCRIBE)
        if any(tool.needs_approval for tool in tools.tools) and engine.approve is None:
            yield SetupFinding(
                "warning",
                "NOBODY_APPROVES",
                f"Step {step.id!r} has tools that need approval, but the harness has no `approve=`.",
                "Pass approve=... to the harness; until then these calls are denied.",
            )


def _targets(engine: Engine) -> Iterator[SetupFinding]:
    """Yield the tools and arguments that rules name but no tool has."""
    known = engine.setups.known(is_over=True)
    if not known and engine.setups.known() is None:
        return  # functions choose the tools, and none has chosen yet
    for book in _books(engine.config):
        for target in unknown_targets(book, known or {}):
            yield SetupFinding("warning", target.code.upper(), f"Rule {target.rule_id!r}: {target.why}", target.fix)


def _books(config: AgentConfig) -> Iterator[Any]:
    """Yield every rule book of an agent and its children once."""
    yield from {id(book): book for book in map(_book, _all_layers(config))}.values()


def _all_layers(config: AgentConfig) -> list[MemoryLayer]:
    return [*config.memory, *_step_layers(config.step)]


def _book(layer: MemoryLayer) -> Any:
    # Any: detected by its `book` attribute. Any layer may enforce rules, and most have no rulebook.
    return getattr(_owner(layer), "book", ())


def _owner(layer: MemoryLayer) -> Any:
    return getattr(layer.hooks.before_tool_call, "__self__", None)


def _judges(engine: Engine) -> Iterator[SetupFinding]:
    for book in _books(engine.config):
        for rule in book:
            if rule.enabled and rule.llm_eval is not None and not engine.answers(rule.llm_eval.model, "judge"):
                yield SetupFinding(
                    "error",
                    "MISSING_CALL_MODEL",
                    f"Rule {rule.id!r} is judged by model {rule.llm_eval.model!r}, which no client answers.",
                    "Give the harness a client for this name; until then each call that the rule judges ends the turn.",
                )
    for hooks in {id(owner): owner for owner in map(_owner, _all_layers(engine.config))}.values():
        for rule_id, count in getattr(getattr(hooks, "judging", None), "unreadable", {}).items():
            yield SetupFinding(
                "warning",
                "UNREADABLE_JUDGE",
                f"The judge of rule {rule_id!r} gave {count} answer{'s' * (count > 1)} that could not be read.",
                f"Each was taken for {hooks.policy.on_unparseable!r}: set on_unparseable='deny', or ask another model.",
            )


def _unused() -> Iterator[SetupFinding]:
    for book in unused_books():
        names = [rule.id for rule in book]
        yield SetupFinding(
            "warning",
            "UNUSED_RULE_BOOK",
            f"A rule book is used by nothing: {', '.join(map(repr, names[:5]))}{' …' if len(names) > 5 else ''}.",
            "Put it into the agent's memory: memory=[rules], or nn.steering(rules).",
        )


def _step_layers(step: Step | None) -> Iterator[MemoryLayer]:
    for found in steps_within(step):
        if isinstance(found, SpawnStep):
            yield from found.memory or ()


def _layers(config: AgentConfig) -> Iterator[SetupFinding]:
    policy = config.projection
    available = policy.token_budget - policy.response_reserve
    if available <= 0:
        yield SetupFinding(
            "error",
            "NO_ROOM",
            f"The response reserve ({policy.response_reserve:g}) leaves nothing of the budget ({policy.token_budget:g}).",
            "Raise token_budget or lower response_reserve.",
        )
    least = sum(budget_range(layer.budget, layer_id=layer.id)[0] for layer in config.memory)
    if 0 < available < least:
        yield SetupFinding(
            "warning",
            "MINIMUMS_DO_NOT_FIT",
            f"The layers ask for at least {least:g} tokens; {available:g} are left for them.",
            "Lower their minimums; until then each gets a share and history gets nothing.",
        )
    for layer in config.memory:
        if not layer.hooks.names() and not layer.provides:
            yield SetupFinding("note", "LAYER_WITHOUT_HOOKS", f"Layer {layer.id!r} has no hooks: it does nothing.")


def _saved(config: AgentConfig) -> Iterator[SetupFinding]:
    for step in steps_within(config.step):
        if step._unknown_keys:
            yield SetupFinding(
                "warning",
                "UNKNOWN_WORKFLOW_KEY",
                f"The document of step {step.id!r} holds {', '.join(map(repr, step._unknown_keys))}, which nobody reads.",
                "Remove it, or correct its name; new documents are refused for it.",
            )


def _dropped(config: AgentConfig) -> Iterator[SetupFinding]:
    spawns = [step for step in steps_within(config.step) if isinstance(step, SpawnStep)]
    known = {layer.id for layers in (config.memory, *[step.memory or () for step in spawns]) for layer in layers}
    for step in spawns:
        dropped = [name for name in step.drop if name in known]
        if dropped:
            yield SetupFinding(
                "warning",
                "LAYERS_DROPPED",
                f"Step {step.id!r} drops {', '.join(map(repr, dropped))} in its child.",
                "Nothing they enforce holds there; remove them from `drop` if that is not meant.",
            )
        unknown = [name for name in step.drop if name not in known]
        if unknown:
            yield SetupFinding(
                "warning",
                "UNKNOWN_LAYER",
                f"Step {step.id!r} drops {', '.join(map(repr, unknown))}, which is not a layer.",
                f"Layers are {', '.join(sorted(known)) or 'none'}.",
            )
