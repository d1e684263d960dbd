"""Token counters by name: a provider's own vocabulary, or a counter that learns from reported usage.

``get("gpt-4.1")`` needs the extra ``tokens``; the default estimate, `noetic_nb.tokens.estimate_tokens`, needs no packages.
"""

from noetic_nb._core.lazy_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
