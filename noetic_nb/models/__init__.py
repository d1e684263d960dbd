"""Language models: the contract, a deterministic one for offline work, and any OpenAI-compatible endpoint."""

from noetic_nb._core.lazy_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
