"""`MemoryHooks?` lists each hook with its record, `AgentConfig?` each field: as they are, not as they were."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.memory import params
from noetic_nb.memory._hooks.hook_results import field_of
from noetic_nb.memory._layer import DEFAULT_TIMEOUTS_MS
from noetic_nb.testing import check_layer
from tests.memory.stacks import CTX, Watched, boom, layer

ENTRY = re.compile(r"^    (\w+) : (.*)\n((?:        .*\n)+)", re.MULTILINE)
SIGNATURE = re.compile(r"callable, ``(\w+)\((.*)\) -> (.*)``")
HOOKS = [item.name for item in fields(nn.MemoryHooks)]
PLAIN = ["delivered", "on_edit", "on_record"]


def listed(cls: type) -> dict[str, tuple[str, str]]:
    """Return the parameters of a class's docstring: by name, the type and the text."""
    section = (cls.__doc__ or "").partition("    Parameters\n")[2]
    section = re.split(r"\n    \w+\n    -{3,}\n", section.partition("----------\n")[2])[0]
    return {name: (kind, text) for name, kind, text in ENTRY.findall(f"{section}\n")}


def signature(hook: str) -> tuple[str, str]:
    """Return what the documentation says a hook takes and returns."""
    found = SIGNATURE.fullmatch(listed(nn.MemoryHooks)[hook][0])
    assert found is not None
    assert found[1] == hook
    return found[2], found[3]


def record_of(hook: str) -> type:
    name, _, record = signature(hook)[0].partition(": ")
    assert name == "p"
    found: type = getattr(params, record)
    return found


def test_every_hook_is_listed_in_the_order_of_its_fields() -> None:
    assert list(listed(nn.MemoryHooks)) == HOOKS
    assert set(HOOKS) - set(PLAIN) == set(DEFAULT_TIMEOUTS_MS)


def test_every_field_of_an_agent_is_listed_in_its_order() -> None:
    found = listed(nn.AgentConfig)

    assert list(found) == list(nn.AgentConfig.model_fields)
    for name, (kind, _) in found.items():
        has_default = not nn.AgentConfig.model_fields[name].is_required()
        assert (name == "name") == (not has_default)
        if match := re.search(r"default (\S+)$", kind.replace("120 000", "120_000")):
            assert eval(match[1]) == nn.AgentConfig.model_fields[name].default


@pytest.mark.parametrize("hook", [hook for hook in HOOKS if hook not in PLAIN])
def test_the_record_of_a_hook_has_what_its_text_names(hook: str) -> None:
    record = record_of(hook)
    names = {name for name in dir(record) if not name.startswith("_")} | set(getattr(record, "__slots__", ()))

    named = set(re.findall(r"``p\.(\w+)", listed(nn.MemoryHooks)[hook][1]))

    assert named <= names
    assert record.__name__ in str(inspect.signature(nn.MemoryHooks).parameters[hook].annotation)
    for field in re.findall(r'"(\w+)"', signature(hook)[1]):
        assert field_of({field: 1}, field, hook=hook) == 1  # raises KeyError for a field that nobody reads


async def test_each_hook_gets_the_record_that_is_listed() -> None:
    got: dict[str, type] = {}

    def noting(hook: str) -> Any:
        def take(p: Any) -> Any:
            got[hook] = type(p)
            return {"state": {"n": 1}} if hook == "init" else {"child_state": {"n": 1}} if hook == "on_spawn" else None

        return take

    hooks = {hook: noting(hook) for hook in HOOKS if hook not in (*PLAIN, "on_hook_failure")}
    await check_layer(layer("a", **hooks))
    failing = Watched(layer("b", before_tool_call=boom, on_hook_failure=noting("on_hook_failure")))
    await failing.before_tool_call(CTX, tool_name="t", tool_args={})

    assert set(got) == set(HOOKS) - set(PLAIN)
    for hook, kind in got.items():
        assert issubclass(kind, record_of(hook)), hook


def test_plain_hooks_are_listed_with_the_arguments_they_get() -> None:
    assert {hook: signature(hook)[0] for hook in PLAIN} == {
        "delivered": "ctx, item_ids",
        "on_edit": "ctx, state",
        "on_record": "sink, clock",
    }
