"""Steps: what an agent does, as data that composes. JSON forms, plans and teams are loaded when they are first used."""

from typing import TYPE_CHECKING

from noetic_nb.lazy import lazily
from noetic_nb.steps.build import branch, fork, loop, spawn, step
from noetic_nb.steps.channel import Channel, channel
from noetic_nb.steps.patterns import react
from noetic_nb.steps.reading import CodecRun, OutputCodec
from noetic_nb.steps.records import BranchStep, ForkStep, LLMStep, LoopStep, Route, RunStep, SpawnStep, Step, ToolStep
from noetic_nb.steps.retry import RetryPolicy
from noetic_nb.steps.snapshot import LoopSnapshot, StepMeta, Verdict
from noetic_nb.steps.tool import Tool, make_tool, tool, wire_name
from noetic_nb.steps.until import UntilPredicate, until

if TYPE_CHECKING:
    from noetic_nb.steps.codec import dump_step, load_step
    from noetic_nb.steps.forms import fenced_json, json_lines
    from noetic_nb.steps.json_schema import step_json_schema
    from noetic_nb.steps.plans import PlanConstraints, PlanNode, adaptive_plan, task_tree
    from noetic_nb.steps.registry import Registry
    from noetic_nb.steps.teams import dual_agent, ralph_wiggum, recursive_llm
    from noetic_nb.steps.workflow import load_workflow

__all__ = [
    "BranchStep",
    "Channel",
    "CodecRun",
    "ForkStep",
    "LLMStep",
    "LoopSnapshot",
    "LoopStep",
    "OutputCodec",
    "PlanConstraints",
    "PlanNode",
    "Registry",
    "RetryPolicy",
    "Route",
    "RunStep",
    "SpawnStep",
    "Step",
    "StepMeta",
    "Tool",
    "ToolStep",
    "UntilPredicate",
    "Verdict",
    "adaptive_plan",
    "branch",
    "channel",
    "dual_agent",
    "dump_step",
    "fenced_json",
    "fork",
    "json_lines",
    "load_step",
    "load_workflow",
    "loop",
    "make_tool",
    "ralph_wiggum",
    "react",
    "recursive_llm",
    "spawn",
    "step",
    "step_json_schema",
    "task_tree",
    "tool",
    "until",
    "wire_name",
]

__getattr__ = lazily(
    __name__,
    {
        "PlanConstraints": "noetic_nb.steps.plans",
        "PlanNode": "noetic_nb.steps.plans",
        "Registry": "noetic_nb.steps.registry",
        "adaptive_plan": "noetic_nb.steps.plans",
        "dual_agent": "noetic_nb.steps.teams",
        "dump_step": "noetic_nb.steps.codec",
        "fenced_json": "noetic_nb.steps.forms",
        "json_lines": "noetic_nb.steps.forms",
        "load_step": "noetic_nb.steps.codec",
        "load_workflow": "noetic_nb.steps.workflow",
        "ralph_wiggum": "noetic_nb.steps.teams",
        "recursive_llm": "noetic_nb.steps.teams",
        "step_json_schema": "noetic_nb.steps.json_schema",
        "task_tree": "noetic_nb.steps.plans",
    },
)
