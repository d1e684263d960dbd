"""Observe other frameworks' agents while they run: their ended spans become a run."""

from noetic_nb.interop._watching.processor import RunSpanProcessor, watch

__all__ = ["RunSpanProcessor", "watch"]
