"""When a regulator steps in: small frozen records with their thresholds as data.

A predicate exported here is registered by that: settings and snapshots keep it as data.
"""

from noetic_nb.regulator.predicates.call_budget import CallBudget
from noetic_nb.regulator.predicates.core import CostCap, ProceduralWarning, QualityDecline, ScopeDrift
from noetic_nb.regulator.predicates.explanation import Predicate
from noetic_nb.regulator.predicates.low_confidence import LowConfidence
from noetic_nb.regulator.predicates.tool_loops import RepeatedFailure, ToolLoop

__all__ = [
    "CallBudget",
    "CostCap",
    "LowConfidence",
    "Predicate",
    "ProceduralWarning",
    "QualityDecline",
    "RepeatedFailure",
    "ScopeDrift",
    "ToolLoop",
]
