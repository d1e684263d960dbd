"""Public names of a package whose modules are loaded at first use.

The names of a package stand once, in its ``__init__.pyi``, where type checkers and editors read them too; `lazy_loader`
turns that stub into a module ``__getattr__``. This file adds what the stub cannot say.
"""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType

from lazy_loader import attach_stub


def attach(
    package: str,
    file: str,
    *,
    also: Mapping[str, str] | None = None,
    modules: frozenset[str] = frozenset(),
    rooms: frozenset[str] = frozenset(),
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package from its stub beside `file` (PEP 562; SPEC 1).

    `also` has names from other packages, each with the module that has it: a stub for `lazy_loader` holds relative imports
    only. `modules` are subpackages at run time although the stub says functions: see `make_callable`. `rooms` are subpackages
    that completion offers and ``import *`` does not load.
    """
    from_stub, _, names = attach_stub(package, file)
    _pickle_by_name(package)
    elsewhere = dict(also or {})

    def __getattr__(name: str) -> object:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name in elsewhere:
            value = getattr(import_module(elsewhere[name]), name)
            setattr(sys.modules[package], name, value)
            return value
        if name in names:
            return from_stub(name)
        error = AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        raise _with_hint(error, name, [*names, *elsewhere])

    public = {*names, *elsewhere} - rooms
    return __getattr__, lambda: sorted(public | rooms), sorted(public)


def _with_hint(error: AttributeError, name: str, names: list[str]) -> AttributeError:
    """Return the error for an unknown name with the one that was meant, if any is like it."""
    if name.startswith("_"):
        return error
    from noetic_nb._core.arguments import closest  # read only where a name was not found

    short = name.casefold()
    # "Agent" is nearer to "AgentHarness" than to whatever has as many letters.
    parts = sorted(one for one in names if one.casefold().startswith(short) or one.casefold().endswith(short))
    hint = f"Did you mean {' or '.join(map(repr, parts[:3]))}?" if parts else closest(name, names)
    return AttributeError(f"{error}. {hint}", name=name) if hint else error


def make_callable(package: str, function: Callable[..., object]) -> None:
    """Let a subpackage be called like the function of its name, ``nn.steering(rules)``, as importing it binds the module."""

    class CallableModule(ModuleType):
        __call__ = staticmethod(function)
        __doc__ = function.__doc__
        __wrapped__ = staticmethod(function)

    sys.modules[package].__class__ = CallableModule
    _pickle_by_name(package)


def _pickle_by_name(package: str) -> None:
    """Let a package be sent to another process inside a function that uses it: cloudpickle knows plain modules only."""
    kind = type(sys.modules[package])
    if kind is not ModuleType:
        copyreg.pickle(kind, _by_name)


def _by_name(module: ModuleType) -> tuple[Callable[[str], ModuleType], tuple[str]]:
    return import_module, (module.__name__,)
