"""A pure, synchronous library that turns events of an LLM agent into decisions: continue, warn, or stop."""

from noetic_nb.regulator import decisions, events, predicates
from noetic_nb.regulator.adapters.otel_spans import events_from_span
from noetic_nb.regulator.adapters.replay import Reading, Recording, record_events
from noetic_nb.regulator.adapters.thread_safe import Locked, ThreadSafeRegulator
from noetic_nb.regulator.measures.topics import RANKED_TOPICS, RELEASE_TOPICS, Topics, cluster_of
from noetic_nb.regulator.measures.word_lists import RELEASE_WORDS, WordLists
from noetic_nb.regulator.person import Person
from noetic_nb.regulator.predicates.context_scorer import CONTEXT_SCORER, ContextScorer
from noetic_nb.regulator.predicates.core import CostCap, ProceduralWarning, QualityDecline, ScopeDrift
from noetic_nb.regulator.predicates.drift import (
    NEWER_KEYWORDS,
    RELEASE_KEYWORDS,
    DriftInput,
    DriftScore,
    DriftScorer,
    KeywordScorer,
)
from noetic_nb.regulator.predicates.explanation import Change, Condition, Explanation, Finding, Predicate
from noetic_nb.regulator.predicates.low_confidence import LowConfidence
from noetic_nb.regulator.predicates.tool_loops import RepeatedFailure, ToolLoop
from noetic_nb.regulator.regulator import Regulator
from noetic_nb.regulator.settings import RELEASE_PREDICATES, Settings
from noetic_nb.regulator.state import RegulatorState

__all__ = [
    "CONTEXT_SCORER",
    "NEWER_KEYWORDS",
    "RANKED_TOPICS",
    "RELEASE_KEYWORDS",
    "RELEASE_PREDICATES",
    "RELEASE_TOPICS",
    "RELEASE_WORDS",
    "Change",
    "Condition",
    "ContextScorer",
    "CostCap",
    "DriftInput",
    "DriftScore",
    "DriftScorer",
    "Explanation",
    "Finding",
    "KeywordScorer",
    "Locked",
    "LowConfidence",
    "Person",
    "Predicate",
    "ProceduralWarning",
    "QualityDecline",
    "Reading",
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
    "cluster_of",
    "decisions",
    "events",
    "events_from_span",
    "predicates",
    "record_events",
]
