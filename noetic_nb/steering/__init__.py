"""Steering: rules enforced before tool calls and after model responses, edited while an agent runs."""

from noetic_nb.memory.decision import SteeringAction, SteeringDecision, Stop, most_restrictive
from noetic_nb.steering.answers import allow, ask, deny, guide
from noetic_nb.steering.file_format import rule_file_schema
from noetic_nb.steering.files import dump_rules, load_rules, parse_rules, save_rules
from noetic_nb.steering.layer import steering
from noetic_nb.steering.rule import DEFAULT_JUDGE_MODEL, LLMEval, Sentence, SteeringRule
from noetic_nb.steering.rulebook import RuleBook, RuleChange
from noetic_nb.steering.snapshot import RuleSnapshot
from noetic_nb.steering.verdict import parse_verdict

__all__ = [
    "DEFAULT_JUDGE_MODEL",
    "LLMEval",
    "RuleBook",
    "RuleChange",
    "RuleSnapshot",
    "Sentence",
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
