"""Steering: rules enforced before tool calls and after model responses, edited while an agent runs."""

from noetic_nb._core.lazy_names import make_callable
from noetic_nb.memory._steering_decision import (
    SteeringAction,
    SteeringDecision,
    Stop,
    allow,
    ask,
    deny,
    guide,
    most_restrictive,
)
from noetic_nb.steering._evaluation.judging import parse_verdict
from noetic_nb.steering._layer import steering
from noetic_nb.steering._rulebook.rule_files import dump_rules
from noetic_nb.steering._rulebook.rulebook import RuleBook, RuleChange, load_rules, parse_rules, save_rules
from noetic_nb.steering._rules.file_schema import rule_file_schema
from noetic_nb.steering._rules.rule import LLMEval, SequenceRule, SteeringRule

__all__ = [
    "LLMEval",
    "RuleBook",
    "RuleChange",
    "SequenceRule",
    "SteeringAction",
    "SteeringDecision",
    "SteeringRule",
    "Stop",
    "allow",
    "ask",
    "deny",
    "dump_rules",
    "guide",
    "load_rules",
    "most_restrictive",
    "parse_rules",
    "parse_verdict",
    "rule_file_schema",
    "save_rules",
    "steering",
]

make_callable(__name__, steering)


def __dir__() -> list[str]:
    return sorted(__all__)
