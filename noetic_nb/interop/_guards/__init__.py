"""Our rules and regulator in front of another framework's tools."""

from noetic_nb.interop._guards.guard_callbacks import regulator_callback
from noetic_nb.interop._guards.guard_sessions import guard_session
from noetic_nb.interop._guards.guarded_tools import guard

__all__ = ["guard", "guard_session", "regulator_callback"]
