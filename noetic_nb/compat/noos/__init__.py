"""The PyPI package ``noos`` 0.1.0 in pure Python: change the import line and nothing else.

A `Regulator` of this module is one of `noetic_nb.regulator` too, so ``explain``, ``decide_all``, ``reset_task`` and
``fork`` are there as well. Deviations, all towards less breakage: events compare by value, any thread may use a
regulator, and numbers above 32 bits in a span saturate.
"""

from noetic_nb.compat.noos.decisions import CircuitBreakReason, CorrectionPattern, Decision
from noetic_nb.compat.noos.events import LLMEvent
from noetic_nb.compat.noos.regulator import Regulator

__all__ = ["CircuitBreakReason", "CorrectionPattern", "Decision", "LLMEvent", "Regulator", "__version__"]

__version__ = "0.1.0"
