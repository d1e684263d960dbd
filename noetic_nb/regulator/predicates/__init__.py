"""When a regulator intervenes: small frozen records with their thresholds as data.

Exporting a predicate here registers it, so that settings and snapshots can store it as data.
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
