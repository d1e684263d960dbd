"""A pure, synchronous library that turns events of an LLM agent into decisions: continue, warn, or stop."""

from noetic_nb.regulator import decisions, events, predicates, presets
from noetic_nb.regulator._adapters.otel_spans import events_from_span
from noetic_nb.regulator._adapters.replay import Recording, record_events
from noetic_nb.regulator._adapters.thread_safe import Locked, ThreadSafeRegulator
from noetic_nb.regulator._measures.topics import Topics, WordLists
from noetic_nb.regulator._regulator import Regulator
from noetic_nb.regulator._settings import Settings
from noetic_nb.regulator._state import RegulatorState
from noetic_nb.regulator.predicates.call_budget import CallBudget
from noetic_nb.regulator.predicates.context_scorer import ContextScorer
from noetic_nb.regulator.predicates.core import CostCap, ProceduralWarning, QualityDecline, ScopeDrift
from noetic_nb.regulator.predicates.drift import DriftInput, DriftScore, DriftScorer, KeywordScorer
from noetic_nb.regulator.predicates.explanation import Predicate, PredicateFinding
from noetic_nb.regulator.predicates.low_confidence import LowConfidence
from noetic_nb.regulator.predicates.tool_loops import RepeatedFailure, ToolLoop

Finding = PredicateFinding  # the earlier name; noetic_nb.testing has another `Finding`

__all__ = [
    "CallBudget",
    "ContextScorer",
    "CostCap",
    "DriftInput",
    "DriftScore",
    "DriftScorer",
    "Finding",
    "KeywordScorer",
    "Locked",
    "LowConfidence",
    "Predicate",
    "PredicateFinding",
    "ProceduralWarning",
    "QualityDecline",
    "Recording",
    "Regulator",
    "RegulatorState",
    "RepeatedFailure",
    "ScopeDrift",
    "Settings",
    "ThreadSafeRegulator",
    "ToolLoop",
    "Topics",
    "WordLists",
    "decisions",
    "events",
    "events_from_span",
    "predicates",
    "presets",
    "record_events",
]


def __dir__() -> list[str]:
    return sorted(__all__)
