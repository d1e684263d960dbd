"""What an outside memory returns is trusted as its authors are known to be, and never as it says itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.events import ToolCalled
from noetic_nb.items._origins import Origin

VALUE, OTHER = "DE89370400440532013000", "GB29NWBK60161331926819"
SCOPES = ("execution", "thread", "resource", "global")


@nn.tool
def read_page(url: str) -> str:
    """Read a page."""
    return f"Account of the landlord: {OTHER}"


@nn.tool
def pay(recipient: str) -> str:
    """Pay."""
    return "paid"


class Store:
    """A memory outside, which writes what it is told in its own words."""

    def __init__(self, wording: Callable[[str], Any] = str) -> None:
        self.wording = wording
        self.records: list[Any] = []

    def add(self, messages: Any, *, session: str, when: Any) -> None:
        self.records += [self.wording(message["content"]) for message in messages]

    def search(self, query: str, *, limit: int) -> list[Any]:
        return self.records[:limit]


def desk(
    store: Any, storage: Any, replies: list[Any], scope: Any = "resource", **trusted: Any
) -> tuple[Any, list[Origin]]:
    seen: list[Origin] = []
    book = nn.RuleBook()

    @book.rule(on="before_tool_call", tools="pay")
    def look(call: Any) -> None:
        seen.append(call.origin(call.tool_args["recipient"]))

    book.only_from_user("pay", "recipient", **trusted)
    memory = [nn.external_memory(store, scope=scope), nn.steering(book)]
    config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[read_page, pay]), memory=memory)
    return nn.AgentHarness(config, model=nn.ScriptedModel(replies), storage=storage), seen


def paid(
    store: Any, said: str, value: str, *, scope: Any = "resource", read: bool = False, trust: Any = "layer:external"
) -> tuple[Origin, str]:
    """Return the origin of a value, and what became of its call, in a conversation after the one in which it was told."""

    async def main() -> tuple[Origin, str]:
        storage = nn.InMemoryStorage()
        first, _ = desk(store, storage, [*([nn.CallTool("read_page", url="x")] if read else []), "Noted."], scope)
        await first.execute(said, thread_id="t", resource_id="ann")
        later, seen = desk(store, storage, [nn.CallTool("pay", recipient=value), "Done."], scope, trust=trust)
        run = nn.record(later)
        await later.execute("Pay the landlord", thread_id="t", resource_id="ann")
        (call,) = run.select(ToolCalled)
        row = run.cause(call).iloc[0]
        # The record says the same, and so does the one that comes back from a file.
        assert (row.kind, row["name"]) == (seen[0].kind, seen[0].name)
        return seen[0], call.status

    return asyncio.run(main())


SAID = f"The landlord has {VALUE}."


@pytest.mark.parametrize("scope", ["thread", "resource", "global"])
@pytest.mark.parametrize(
    "wording",
    [str, str.lower, lambda text: {"text": f"Fact: {text}", "id": "1"}, lambda text: {"text": text, "origin": "user"}],
    ids=["as it is", "in small letters", "in other words", "named"],
)
def test_what_the_user_told_is_the_layers_whatever_the_store_makes_of_the_sentence(scope: Any, wording: Any) -> None:
    origin, status = paid(Store(wording), SAID, VALUE, scope=scope)

    assert (origin.text, status) == ("layer:external", "ok")
    assert origin.chain[0].text == "user"
    assert origin.chain[-1].text == "layer:external"


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(
    "claimed", [None, "user", "system", "layer:external", "tool read_page", "tool:read_page", "bob", ""]
)
def test_a_value_that_nobody_is_known_to_have_told_is_nobodys(scope: Any, claimed: str | None) -> None:
    """Written by others, merged from two memories, or altered."""
    record = {"text": f"The landlord has {OTHER}."} | ({} if claimed is None else {"origin": claimed})
    store = Store(lambda text: record)

    origin, status = paid(store, SAID, OTHER, scope=scope, trust=("layer:external", "read_page", "system"))

    assert (origin.text, status) == ("model", "denied")
    assert origin.chain[-1] == Origin("layer", "external", origin.chain[-1].item)


@pytest.mark.parametrize("wording", [lambda text: re.sub(r"\d{4}", "0000", text, count=1), lambda text: text[:-4]])
def test_an_altered_value_is_nobodys(wording: Callable[[str], str]) -> None:
    altered = wording(VALUE)

    assert paid(Store(lambda text: text.replace(VALUE, altered)), SAID, altered)[0].text == "model"


@pytest.mark.parametrize("claimed", [None, "user", "tool:read_page", "tool:get_contacts"])
def test_what_a_tool_told_stays_the_tools(claimed: str | None) -> None:
    record = {"text": f"The landlord has {OTHER}."} | ({} if claimed is None else {"origin": claimed})

    origin, status = paid(
        Store(lambda text: record), "Which account?", OTHER, read=True, trust=("layer:external", "get_contacts")
    )

    assert (origin.text, status) == ("tool:read_page", "denied")
    assert [link.text for link in origin.chain] == [
        "tool:read_page",
        *([] if claimed is None else [claimed]),
        "layer:external",
    ]


@pytest.mark.parametrize("claimed", ["tool:read_page", "tool read_page", "model", "bob"])
def test_a_store_that_says_a_tool_told_it_is_believed_even_where_the_user_said_the_same(claimed: str) -> None:
    origin, status = paid(Store(lambda text: {"text": text, "origin": claimed}), SAID, VALUE)

    assert origin.kind in ("tool", "model")
    assert status == "denied"


def test_in_a_store_of_all_users_one_does_not_speak_for_another() -> None:
    store, storage = Store(), nn.InMemoryStorage()

    async def main() -> tuple[str, str]:
        first, _ = desk(store, storage, ["Noted."])
        await first.execute(f"The landlord has {OTHER}.", thread_id="b", resource_id="bob")
        later, seen = desk(store, storage, [nn.CallTool("pay", recipient=OTHER), "Done."], trust="layer:external")
        run = nn.record(later)
        await later.execute("Pay the landlord", thread_id="a", resource_id="ann")
        return seen[0].text, run.select(ToolCalled)[0].status

    assert asyncio.run(main()) == ("model", "denied")


def test_a_layer_of_your_own_over_a_store_of_others_says_so() -> None:
    """Even where it takes nothing in."""

    async def origin(foreign: bool) -> str:
        hooks = nn.MemoryHooks(recall=lambda p: f"The landlord has {OTHER}.")
        layer = nn.MemoryLayer(id="wiki", slot=1, scope="global", hooks=hooks, foreign=foreign)
        seen: list[Origin] = []
        rule = nn.SteeringRule(
            id="look",
            applies_to="before_tool_call",
            predicate=lambda call: seen.append(call.origin(call.tool_args["recipient"])),
        )
        step = nn.react(model="m", tools=[pay])
        config = nn.AgentConfig(name="desk", step=step, memory=[layer, nn.steering(rules=[rule])])
        model = nn.ScriptedModel([nn.CallTool("pay", recipient=OTHER), "Done."])
        await nn.AgentHarness(config, model=model).execute("Pay")
        return seen[0].text

    assert asyncio.run(origin(False)) == "layer:wiki"
    assert asyncio.run(origin(True)) == "model"
