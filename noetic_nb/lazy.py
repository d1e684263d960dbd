"""Names a package offers without loading what is behind them until they are used.

Importing the library must stay cheap for those who use a part of it. A package that offers such names lists them here
and under ``TYPE_CHECKING``, so that readers and type checkers see ordinary imports.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["keep_names", "lazily"]


def lazily(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module ``__getattr__`` that loads a name from its module when it is first asked for.

    Parameters
    ----------
    package : str
        ``__name__`` of the package.
    places : mapping of str to str
        From each name to the module that has it. A name must differ from its module's, which would hide it.

    Returns
    -------
    callable
        Assign it to ``__getattr__``.

    References
    ----------
    .. [1] PEP 562, module ``__getattr__``.

    Examples
    --------
    >>> lookup = lazily("noetic_nb.lazy", {"sqrt": "math"})
    >>> lookup("sqrt")(9.0)
    3.0
    >>> lookup("nothing")
    Traceback (most recent call last):
    ...
    AttributeError: module 'noetic_nb.lazy' has no attribute 'nothing'
    """

    def __getattr__(name: str) -> Any:
        place = places.get(name)
        if place is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(place), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__


def keep_names(package: str, names: frozenset[str]) -> None:
    """Keep subpackages from hiding functions of the same name.

    Importing ``package.steering`` binds the module as an attribute of its parent; where the parent offers a function of
    that name, the function is what its users mean. The module itself is still found by ``from package.steering import``.

    Parameters
    ----------
    package : str
        ``__name__`` of the parent.
    names : frozenset of str
        The names that stay functions.
    """

    class Shop(ModuleType):
        def __setattr__(self, name: str, value: object) -> None:
            if not (name in names and isinstance(value, ModuleType)):
                super().__setattr__(name, value)

    # The documented way to customise a module: data model, "Customizing module attribute access".
    sys.modules[package].__class__ = Shop
