"""The PyPI package ``noos`` 0.1.0 in pure Python: change the import line and nothing else.

A `Regulator` of this module is one of `noetic_nb.regulator` too, so ``explain``, ``decide_all``, ``reset_task`` and
``fork`` are there as well. Deviations, all towards less breakage: events compare by value, they, decisions and regulators can
be copied and pickled, any thread may use a regulator, and numbers above 32 bits in a span saturate. The texts of suggestions
and errors are this library's: branch on ``kind`` and on the class of an exception, as with the compiled package.
"""

import sys

from noetic_nb.compat.noos.decisions import CircuitBreakReason, CorrectionPattern, Decision
from noetic_nb.compat.noos.events import LLMEvent
from noetic_nb.compat.noos.regulator import Regulator
from noetic_nb.errors import NoeticConfigError

__all__ = ["CircuitBreakReason", "CorrectionPattern", "Decision", "LLMEvent", "Regulator", "__version__", "install"]

__version__ = "0.1.0"


def install() -> None:
    """Make ``import noos`` mean this module in the whole process, for packages whose import line is not yours to change.

    Call it before anything imports ``noos``; a second call changes nothing.

    Raises
    ------
    NoeticConfigError
        ``ALREADY_IMPORTED`` where the compiled package is in use: some code holds its classes already, and events of one
        are refused by the other.

    Examples
    --------
    >>> from noetic_nb.compat import noos
    >>> noos.install()                                              # doctest: +SKIP
    >>> import noos                                                 # doctest: +SKIP
    """
    this = sys.modules[__name__]
    present = sys.modules.setdefault("noos", this)
    if present is not this:
        what = "Another package named noos is imported already, so its classes are in use."
        hint = "Call install() first thing in the process, before whatever imports noos."
        raise NoeticConfigError("ALREADY_IMPORTED", what, given=getattr(present, "__file__", None), hint=hint)
