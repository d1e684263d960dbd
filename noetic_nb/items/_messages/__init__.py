"""Messages as others keep them, read into items and written again; the lowest floor that knows a provider's form."""

from noetic_nb._core.lazy_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
