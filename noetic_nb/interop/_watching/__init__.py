"""Other people's agents while they work: spans that end become a run."""

from noetic_nb.interop._watching.processor import RunSpanProcessor, watch

__all__ = ["RunSpanProcessor", "watch"]
