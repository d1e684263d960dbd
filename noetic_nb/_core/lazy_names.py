"""Public names of a package whose modules are loaded on first use.

The names of a package are listed once, in its ``__init__.pyi``, which type checkers and editors read, too;
`lazy_loader` turns that stub into a module ``__getattr__``. This file adds what a stub cannot express.
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
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package from its stub next to `file` (PEP 562; SPEC 1).

    `also` maps names from other packages to their modules, because a stub for `lazy_loader` has relative imports only.
    `modules` are subpackages at run time although the stub declares functions: see `make_callable`. `rooms` are
    subpackages that completion offers but ``import *`` does not load.
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
    """Return the error for an unknown name, with a suggestion if a known name is similar."""
    if name.startswith("_"):
        return error
    from noetic_nb._core.arguments import closest  # only needed for unknown names

    short = name.casefold()
    # "Agent" should suggest "AgentHarness" rather than a name of similar length.
    parts = sorted(one for one in names if one.casefold().startswith(short) or one.casefold().endswith(short))
    hint = f"Did you mean {' or '.join(map(repr, parts[:3]))}?" if parts else closest(name, names)
    return AttributeError(f"{error}. {hint}", name=name) if hint else error


def make_callable(package: str, function: Callable[..., object]) -> None:
    """Make a subpackage callable like the function of its name, ``nn.steering(rules)``, since importing it binds the module."""

    class CallableModule(ModuleType):
        __call__ = staticmethod(function)
        __doc__ = function.__doc__
        __wrapped__ = staticmethod(function)

    sys.modules[package].__class__ = CallableModule
    _pickle_by_name(package)


def _pickle_by_name(package: str) -> None:
    """Make a package picklable inside a function sent to another process: cloudpickle only handles plain modules."""
    kind = type(sys.modules[package])
    if kind is not ModuleType:
        copyreg.pickle(kind, _by_name)


def _by_name(module: ModuleType) -> tuple[Callable[[str], ModuleType], tuple[str]]:
    return import_module, (module.__name__,)
