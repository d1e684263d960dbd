"""Steps: what an agent does, as data that composes."""

from noetic_nb.steps.build import branch, fork, loop, spawn, step
from noetic_nb.steps.channel import Channel, channel
from noetic_nb.steps.patterns import react
from noetic_nb.steps.records import BranchStep, ForkStep, LLMStep, LoopStep, Route, RunStep, SpawnStep, Step, ToolStep
from noetic_nb.steps.retry import RetryPolicy
from noetic_nb.steps.snapshot import LoopSnapshot, StepMeta, Verdict
from noetic_nb.steps.tool import Tool, make_tool, tool, wire_name
from noetic_nb.steps.until import UntilPredicate, until

__all__ = [
    "BranchStep",
    "Channel",
    "ForkStep",
    "LLMStep",
    "LoopSnapshot",
    "LoopStep",
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
    "branch",
    "channel",
    "fork",
    "loop",
    "make_tool",
    "react",
    "spawn",
    "step",
    "tool",
    "until",
    "wire_name",
]
