"""Views of runs and of rule books for notebooks. The only package that knows Jupyter; nothing below imports it."""

from noetic_nb.widgets.allocation.allocation import TokenAllocation
from noetic_nb.widgets.approval.approval import Approval
from noetic_nb.widgets.base.selection import Selection
from noetic_nb.widgets.compare.compare import Compare
from noetic_nb.widgets.ledger.ledger import Ledger
from noetic_nb.widgets.memory.memory_view import MemoryView
from noetic_nb.widgets.rules.rule_editor import RuleEditor
from noetic_nb.widgets.rules.rule_magic import load_ipython_extension
from noetic_nb.widgets.timeline.timeline import RunTimeline
from noetic_nb.widgets.transcript.transcript import Transcript
from noetic_nb.widgets.trends.trends import RegulatorTrends
from noetic_nb.widgets.workbench.workbench import Workbench

__all__ = [
    "Approval",
    "Compare",
    "Ledger",
    "MemoryView",
    "RegulatorTrends",
    "RuleEditor",
    "RunTimeline",
    "Selection",
    "TokenAllocation",
    "Transcript",
    "Workbench",
    "load_ipython_extension",
]
