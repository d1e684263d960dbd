"""Steps: what an agent does, as data that composes."""

from noetic_nb.steps.build import loop, step
from noetic_nb.steps.patterns import react
from noetic_nb.steps.records import LLMStep, LoopStep, RunStep, Step, ToolStep
from noetic_nb.steps.tool import Tool, make_tool, tool, wire_name
from noetic_nb.steps.until import LoopSnapshot, UntilPredicate, Verdict, until

__all__ = [
    "LLMStep",
    "LoopSnapshot",
    "LoopStep",
    "RunStep",
    "Step",
    "Tool",
    "ToolStep",
    "UntilPredicate",
    "Verdict",
    "loop",
    "make_tool",
    "react",
    "step",
    "tool",
    "until",
    "wire_name",
]
