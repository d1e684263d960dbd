"""The display of an object at the end of a cell: one line of text, a small tree, or the same as HTML.

A class returns its facts from ``_card``, as data; layout, cutting, redaction and escaping are implemented only here.
Nothing is computed before it is displayed, and nothing raises, so that even a broken object can be inspected.

From the ground up: `card`, `shown_forms`, `on_classes`; each may import those before it.
"""

from noetic_nb._core.lazy_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
