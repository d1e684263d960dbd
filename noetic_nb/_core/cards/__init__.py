"""The display of an object at the end of a cell: one line of text, a small tree, or the same as HTML.

A class says what there is to see in ``_card``, as data; how it is laid out, cut, cleaned of secrets and escaped stands here and
nowhere else. Nothing is computed before it is looked at, and nothing in it raises: whoever looks at an object in trouble
needs to see something.

From the ground up: `card`, `shown_forms`, `on_classes`; each may know those before it.
"""

from noetic_nb._core.lazy_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
