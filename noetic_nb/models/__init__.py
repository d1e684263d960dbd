"""Language models: the client interface, a deterministic model for offline work, and a client for OpenAI-compatible endpoints."""

from noetic_nb._core.lazy_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
