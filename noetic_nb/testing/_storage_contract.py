"""The contract of a storage adapter, tested on the real storage under separate keys, which are deleted afterwards."""

from __future__ import annotations

import asyncio
import copy
import inspect
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.testing._findings import ContractCheck, Finding, Notes, Stopwatch, first_line, limited, not_blocking

METHODS: Final = ("get", "set", "delete", "list")
# Seconds; a storage on another continent answers within one.
LIMIT_S: Final = 5.0
# The number of concurrent writers: enough to expose a race in an adapter that awaits between reading and writing.
WRITERS: Final = 8
_VALUES: Final[dict[str, Any]] = {
    "text": "grüße 🚀 \u2028 'quoted' \"twice\"",
    "empty": "",
    "zero": 0,
    "false": False,
    "number": -1.5e-7,
    "large": 2**53 + 1,
    "list": [1, [2, {"a": None}], "x"],
    "mapping": {"b": 1, "a": {"nested": [True, False, None]}, "": "blank key", "ö": "umlaut"},
    "nothing-in-it": {},
    "long": "0123456789" * 20_000,
}
# Keys that must stay distinct although an adapter may split, case-fold or match them as patterns.
_KEYS: Final = ("a/b", "a/b/c", "a/bc", "A/b", "a_b", "a%b", "a*b", "a~1b", "ä/b", "a b", "a.b")


def check_storage(adapter: Any) -> ContractCheck:
    """Test a storage adapter for everything that the library relies on.

    See docs/behaviour/durability.md, "Contract tests".

    Parameters
    ----------
    adapter : StorageAdapter
        With ``get``, ``set``, ``delete`` and ``list``, and optionally ``get_many``, ``set_many``, ``get_versioned`` and
        ``compare_and_set``. The test only writes under ``noetic-check/<random>/``, and cleans up.

    Returns
    -------
    ContractCheck
        Findings ``(code, text)``; none means success. Await it, or read it without ``await``.

    Raises
    ------
    NoeticConfigError
        ``INVALID_STORAGE`` for an object with none of the four methods.

    Examples
    --------
    >>> from noetic_nb.storage import InMemoryStorage
    >>> check_storage(InMemoryStorage())
    InMemoryStorage: no findings
    """
    missing = [name for name in METHODS if not callable(getattr(adapter, name, None))]
    if len(missing) == len(METHODS):
        hint = f"It needs async {', '.join(METHODS)}."
        raise NoeticConfigError("INVALID_STORAGE", "This is not a store.", given=adapter, hint=hint)

    async def run() -> tuple[Finding, ...]:
        notes = Notes()
        for name in missing:
            notes.add("missing_method", f"There is no method {name!r}.")
        if not missing:
            await _Trial(adapter, notes).run()
        return notes.found

    return ContractCheck(run, type(adapter).__name__)


class _Failed(Exception):
    """A call failed, and the failure is noted."""


class _Trial:
    """One adapter under test."""

    def __init__(self, store: Any, notes: Notes) -> None:
        self.store = store
        self.notes = notes
        self.watch = Stopwatch()
        self.root = f"noetic-check/{uuid.uuid4().hex}/"

    async def run(self) -> None:
        tests = (
            self._values,
            self._copies,
            self._keys,
            self._listing,
            self._deletes,
            self._at_once,
            self._get_many,
            self._set_many,
            self._versions,
        )
        try:
            for test in tests:
                try:
                    await test()
                except _Failed:
                    continue
            await not_blocking(self.notes, self._measure, lambda name: f"{name}()")
        finally:
            try:
                for key in await limited(self.store.list(self.root), LIMIT_S):
                    await limited(self.store.delete(key), LIMIT_S)
            except Exception as exc:
                self.notes.add("call_failed", f"The keys of the test could not be removed: {first_line(exc)}")

    def key(self, name: str) -> str:
        return self.root + name

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        """Call a method with a time limit; raises `_Failed` after noting the failure."""
        function = getattr(self.store, method)
        try:
            start = time.perf_counter()
            result = function(*args, **options)
            self.watch.note(method, start)
            if not inspect.isawaitable(result):
                self.notes.add("not_async", f"{method}() is not async: the library awaits it.")
                raise _Failed
            return await limited(self.watch.call(method, lambda: result), LIMIT_S)
        except TimeoutError as exc:
            self.notes.add("hangs", f"{method}() did not answer within {LIMIT_S:g} s.")
            raise _Failed from exc
        except (_Failed, NoeticError):
            raise
        except Exception as exc:
            self.notes.add("call_failed", f"{method}({_shown(args)}) raised {first_line(exc)}")
            raise _Failed from exc

    async def plain(self, method: str, *args: Any, **options: Any) -> Any:
        """Call a method that has no reason to refuse."""
        try:
            return await self.call(method, *args, **options)
        except NoeticError as exc:
            self.notes.add("call_failed", f"{method}({_shown(args)}) raised {first_line(exc)}")
            raise _Failed from exc

    async def _values(self) -> None:
        missing = await self.plain("get", self.key("missing"))
        if missing is not None:
            self.notes.add("missing_not_none", f"get() of a key that was never set gives {missing!r:.80}, not None.")
        for name, value in _VALUES.items():
            await self.plain("set", self.key(name), value)
            found = await self.plain("get", self.key(name))
            if not _same(found, value):
                self.notes.add("value_changed", f"A value came back changed: {value!r:.80} as {found!r:.80}.")
        for value in ({"n": 1}, {"n": 2}, "now a text"):
            await self.plain("set", self.key("again"), value)
        if await self.plain("get", self.key("again")) != "now a text":
            self.notes.add("not_replaced", "A second set() of a key does not replace the first value.")

    async def _copies(self) -> None:
        given = {"list": [1]}
        await self.plain("set", self.key("copied"), given)
        given["list"].append(2)
        if await self.plain("get", self.key("copied")) != {"list": [1]}:
            self.notes.add("value_shared", "A value changes in the store when the caller changes it after set().")
        await self.plain("set", self.key("copied"), {"list": [1]})
        found = await self.plain("get", self.key("copied"))
        if isinstance(found, dict):
            found.setdefault("list", []).append(3)
        if await self.plain("get", self.key("copied")) != {"list": [1]}:
            self.notes.add("value_shared", "A value changes in the store when the caller changes what get() gave.")

    async def _keys(self) -> None:
        for name in _KEYS:
            await self.plain("set", self.key(f"keys/{name}"), name)
        for name in _KEYS:
            if await self.plain("get", self.key(f"keys/{name}")) != name:
                self.notes.add("keys_mixed", f"The key {name!r} is taken for another one.")

    async def _listing(self) -> None:
        for name in _KEYS:
            await self.plain("set", self.key(f"keys/{name}"), name)
        for prefix in ("keys/", "keys/a/b", "keys/a/b/", "keys/a_", "keys/a%", "keys/A", "keys/ä", "keys/none"):
            wanted = sorted(self.key(f"keys/{name}") for name in _KEYS if f"keys/{name}".startswith(prefix))
            found = await self.plain("list", self.key(prefix))
            if not isinstance(found, list) or not all(isinstance(key, str) for key in found):
                self.notes.add("list_wrong", f"list() gives a list of keys, not {found!r:.80}.")
                return
            if sorted(found) != wanted:
                self.notes.add(
                    "list_wrong", f"list() of the prefix {prefix!r} gives {_names(found)}, not {_names(wanted)}."
                )
            elif found != wanted:
                self.notes.add("list_unsorted", f"list() is sorted: {_names(wanted)}, not {_names(found)}.")

    async def _deletes(self) -> None:
        for name in ("gone", "gone/not"):
            await self.plain("set", self.key(name), 1)
        await self.plain("delete", self.key("gone"))
        await self.plain("delete", self.key("never there"))
        if await self.plain("get", self.key("gone")) is not None:
            self.notes.add("not_deleted", "A key can be read after delete().")
        if self.key("gone") in await self.plain("list", self.key("gone")):
            self.notes.add("not_deleted", "A key is listed after delete().")
        if await self.plain("get", self.key("gone/not")) != 1:
            self.notes.add("keys_mixed", "delete() of a key takes longer keys with it.")

    async def _at_once(self) -> None:
        keys = [self.key(f"at once/{n}") for n in range(WRITERS)]
        await asyncio.gather(*(self.plain("set", key, n) for n, key in enumerate(keys)))
        if list(await asyncio.gather(*(self.plain("get", key) for key in keys))) != list(range(WRITERS)):
            self.notes.add("write_lost", "Of several set() at once, not all are kept.")

    async def _get_many(self) -> None:
        if not hasattr(self.store, "get_many"):
            return
        for name in ("one", "two"):
            await self.plain("set", self.key(f"many/{name}"), {"n": name})
        asked = [self.key("many/two"), self.key("many/missing"), self.key("many/one")]
        found = await self.plain("get_many", asked)
        wanted = {self.key(f"many/{name}"): {"n": name} for name in ("one", "two")}
        if not isinstance(found, dict) or found != wanted:
            self.notes.add("get_many_wrong", f"get_many() gives a mapping of the keys that exist, not {found!r:.120}.")

    async def _set_many(self) -> None:
        if not hasattr(self.store, "set_many"):
            return
        old, new, taken = (self.key(f"set/{name}") for name in ("old", "new", "taken"))
        await self.plain("set", old, 1)
        await self.plain("set_many", {new: 2, taken: 3}, delete=[old], absent=[new])
        if [await self.plain("get", key) for key in (old, new, taken)] != [None, 2, 3]:
            self.notes.add("set_many_wrong", "set_many() writes its values and deletes what `delete` names.")
        await self._refused(
            "set_many_wrong",
            "set_many() with a key under `absent` that exists",
            lambda: self.call("set_many", {old: 9}, delete=[new], absent=[taken]),
        )
        if [await self.plain("get", key) for key in (old, new)] != [None, 2]:
            self.notes.add("set_many_wrong", "set_many() that is refused has written a part of its values.")

    async def _refused(self, code: str, what: str, call: Callable[[], Awaitable[Any]]) -> None:
        """Note a call that must be refused because of a conflict but is not."""
        try:
            await call()
        except NoeticError as exc:
            if exc.kind != "state_conflict":
                self.notes.add(code, f"{what} raises NoeticError 'state_conflict', not {exc.kind!r}.")
        else:
            self.notes.add(code, f"{what} must raise NoeticError 'state_conflict'.")

    async def _versions(self) -> None:
        has = [name for name in ("get_versioned", "compare_and_set") if hasattr(self.store, name)]
        if len(has) < 2:
            if has:
                self.notes.add("half_versioned", f"A store with {has[0]}() has the other of the two as well.")
            return
        key, code = self.key("versioned"), "compare_and_set_wrong"
        if await self._version(key) is not None:
            self.notes.add(code, "get_versioned() of a missing key has the version None.")
        first = await self.plain("compare_and_set", key, None, {"n": 1})
        if await self._version(key) != first:
            self.notes.add(code, "compare_and_set() returns the version that get_versioned() gives.")
        await self._refused(
            code, "compare_and_set() of None on a key that exists", lambda: self.call("compare_and_set", key, None, 0)
        )
        second = await self.plain("compare_and_set", key, first, {"n": 2})
        if second == first:
            self.notes.add(code, "Each write has a version of its own.")
        stale = f"compare_and_set() with version {first!r} when it is {second!r}"
        await self._refused(code, stale, lambda: self.call("compare_and_set", key, first, 0))
        if (await self.plain("get_versioned", key)).value != {"n": 2}:
            self.notes.add(code, "A compare_and_set() that was refused has changed the value.")
        await self.plain("set", key, {"n": 3})
        if await self._version(key) == second:
            self.notes.add(code, "set() gives a new version, or compare_and_set() would miss the write.")
        await self._count_together(self.key("counter"))

    async def _version(self, key: str) -> Any:
        return (await self.plain("get_versioned", key)).version

    async def _count_together(self, key: str) -> None:
        async def add() -> None:
            for _ in range(WRITERS * WRITERS):
                found = await self.plain("get_versioned", key)
                try:
                    await self.call("compare_and_set", key, found.version, (found.value or 0) + 1)
                except NoeticError:
                    continue
                return

        await asyncio.gather(*(add() for _ in range(WRITERS)))
        total = await self.plain("get", key)
        if total != WRITERS:
            self.notes.add("write_lost", f"{WRITERS} writers that compare_and_set() a counter bring it to {total!r}.")

    async def _measure(self) -> Stopwatch:
        self.watch = Stopwatch()
        try:
            await self.plain("set", self.key("measured"), {"text": "x" * 1_000})
            await self.plain("get", self.key("measured"))
            await self.plain("list", self.root)
            await self.plain("delete", self.key("measured"))
        except _Failed:
            pass
        return self.watch


def _same(found: Any, value: Any) -> bool:
    """Compare as JSON does: 1 is not True, and the order within a mapping does not matter."""
    if type(found) is not type(value):
        return False
    if isinstance(value, dict):
        return found.keys() == value.keys() and all(_same(found[key], inner) for key, inner in value.items())
    if isinstance(value, list):
        return len(found) == len(value) and all(map(_same, found, value))
    return bool(found == value)


def _shown(args: tuple[Any, ...]) -> str:
    return ", ".join(f"{copy.copy(arg)!r:.60}" for arg in args)


def _names(keys: list[str]) -> str:
    return repr([key.split("/", 2)[-1] for key in keys])[:200]
