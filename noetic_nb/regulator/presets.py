"""Ready-made settings: release parity is `settings.RELEASE_SETTINGS`; here are the newest original and what one would run.

The recommended numbers come from ``benchmarks/drift_study.py`` on 100 public airline runs, half of them successful: five
calls of one tool in a row, the release rule, would have stopped 14 % of the *successful* runs, identical calls none.
"""

from __future__ import annotations

from typing import Final

from noetic_nb.regulator.measures.topics import RANKED_TOPICS
from noetic_nb.regulator.predicates.context_scorer import CONTEXT_SCORER, CONTEXT_THRESHOLD
from noetic_nb.regulator.predicates.core import CostCap, ProceduralWarning, QualityDecline, ScopeDrift
from noetic_nb.regulator.predicates.drift import NEWER_KEYWORDS
from noetic_nb.regulator.predicates.low_confidence import LowConfidence
from noetic_nb.regulator.predicates.tool_loops import RepeatedFailure, ToolLoop
from noetic_nb.regulator.settings import Settings

__all__ = ["NEWER_SETTINGS", "RECOMMENDED_SETTINGS"]

NEWER_SETTINGS: Final = Settings(
    predicates=(CostCap(), QualityDecline(), ToolLoop(), ScopeDrift(scorer=NEWER_KEYWORDS), ProceduralWarning()),
    cluster_from=RANKED_TOPICS,
)
"""The newest original: ranked topics with prefix anchoring, and its rule for correction clusters (specification, section 3.6)."""

RECOMMENDED_SETTINGS: Final = Settings(
    predicates=(
        CostCap(),
        QualityDecline(),
        # Stopped 2 % of successful runs; a tool that is really stuck repeats its arguments and is caught below at three.
        ToolLoop(threshold=8),
        ToolLoop(threshold=3, by="call", across_turns=True),
        ToolLoop(threshold=3, by="call", period=2, across_turns=True),
        ToolLoop(threshold=3, by="call", period=3, across_turns=True),
        ToolLoop(threshold=3, by="result", across_turns=True),
        RepeatedFailure(threshold=3),
        ScopeDrift(scorer=CONTEXT_SCORER, threshold=CONTEXT_THRESHOLD),
        ProceduralWarning(),
        LowConfidence(),
    ),
    turns="strict",
    snapshots="everything",
    max_clusters=512,
)
"""What one would run: loops by what was called, drift in context, strict turns, nothing lost in snapshots, bounded memory."""
