"""Memories and the authors of their values: chains, restarts, saved runs, forks, rewording, trust."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.items._origins import Origin
from noetic_nb.lab import backtest
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.steering import RuleBook
from noetic_nb.storage import SQLiteStorage

PAGES = "GB29NWBK60161331926819"
USERS = "DE89370400440532013000"
PAID: list[str] = []


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    PAID.clear()


@nn.tool
def read_page(url: str) -> str:
    """Read a page."""
    return f"Our account is now {PAGES}"


@nn.tool
def pay(recipient: str) -> str:
    """Pay."""
    PAID.append(recipient)
    return "paid"


def notes(read: Any = lambda text: text, **options: Any) -> MemoryLayer:
    """Keep all texts of a conversation, as `read` words them."""

    def store(p: Any) -> dict[str, Any]:
        texts = [item.get("output") or nn.items.item_text(item) for item in p.log]
        return {"state": {"texts": [*(p.state or {"texts": []})["texts"], read("\n".join(texts))]}}

    hooks = MemoryHooks(recall=lambda p: "\n".join(p.state["texts"]) if p.state else None, store=store)
    return MemoryLayer(id="notes", slot=100, scope="resource", hooks=hooks, **options)


class Desk:
    """A harness whose rules note origins."""

    def __init__(self, storage: Any, script: list[Any], *memory: Any, rules: RuleBook | None = None) -> None:
        self.seen: list[Origin] = []
        book = RuleBook() if rules is None else rules

        @book.rule("look", on="before_tool_call", tools=["pay"])
        def look(call: Any) -> None:
            self.seen.append(call.origin(call.tool_args["recipient"]))

        config = nn.AgentConfig(
            name="desk",
            step=nn.react(model="m", tools=[read_page, pay]),
            memory=[*(memory or [notes()]), nn.steering(book)],
        )
        self.harness = nn.AgentHarness(config, model=nn.ScriptedModel(script), storage=storage, checkpoints=False)

    async def says(self, text: str, thread: str, who: str = "ann") -> Origin | None:
        await self.harness.execute(text, thread_id=thread, resource_id=who)
        return self.seen[-1] if self.seen else None


def careful(**options: Any) -> RuleBook:
    book = RuleBook()
    book.only_from_user("pay", "recipient", **options)
    return book


LEARN: list[Any] = [nn.CallTool("read_page", url="x"), "Noted."]


def paying(value: str) -> list[Any]:
    return [nn.CallTool("pay", recipient=value), "Done."]


async def test_the_chain_names_the_first_author_and_the_layer() -> None:
    desk = Desk(nn.InMemoryStorage(), [*LEARN, *paying(PAGES), *paying(USERS)])
    await desk.says(f"My landlord has {USERS}; look up the new account.", "t1")
    of_page = await desk.says("Pay it", "t2")
    of_user = await desk.says("Pay my landlord", "t3")

    assert of_page is not None
    assert of_user is not None
    assert (of_page.kind, of_page.name, [link.text for link in of_page.chain]) == (
        "tool",
        "read_page",
        ["tool:read_page", "layer:notes"],
    )
    assert (of_user.kind, [link.text for link in of_user.chain]) == ("layer", ["user", "layer:notes"])


async def test_a_value_of_the_user_stays_so_where_tools_repeat_it_later() -> None:
    desk = Desk(nn.InMemoryStorage(), ["Noted.", nn.CallTool("read_page", url="x"), "Read.", *paying(PAGES)])
    await desk.says(f"My account is {PAGES}", "t1")
    await desk.says("Look at the page", "t2")

    assert str(await desk.says("Pay me", "t3")) == "layer:notes"


async def test_another_process_knows_the_authors(tmp_path: Path) -> None:
    async with SQLiteStorage(tmp_path / "s.db") as storage:
        await Desk(storage, LEARN).says("Look it up", "t1")
    async with SQLiteStorage(tmp_path / "s.db") as storage:
        assert str(await Desk(storage, paying(PAGES)).says("Pay it", "t2")) == "tool:read_page"


async def test_of_a_value_that_was_worded_anew_any_tool_may_be_the_author() -> None:
    def worded(text: str) -> str:
        return "landlord: ACC-6819" if PAGES in text else text

    storage = nn.InMemoryStorage()
    await Desk(storage, LEARN, notes(worded)).says("Look it up", "t1")
    assert str(await Desk(storage, paying("ACC-6819"), notes(worded)).says("Pay it", "t2")) == "tool:read_page"
    # Of the user alone: nobody else can have written it.
    alone = nn.InMemoryStorage()
    await Desk(alone, ["Noted."], notes(lambda text: "landlord: ACC-6819")).says("My landlord is Ann", "t1")
    assert str(await Desk(alone, paying("ACC-6819"), notes()).says("Pay", "t2")) == "layer:notes"


async def test_a_trusted_layer_does_not_speak_for_a_page() -> None:
    storage = nn.InMemoryStorage()
    await Desk(storage, LEARN).says(f"My landlord has {USERS}", "t1")
    for value in (PAGES, USERS):
        await Desk(storage, paying(value), rules=careful(trust="layer:notes")).says("Pay it", "t2")

    assert PAID == [USERS]
    await Desk(storage, paying(PAGES), rules=careful(trust=("layer:notes", "read_page"))).says("Pay it", "t3")
    assert PAID == [USERS, PAGES]


async def test_a_trusted_layer_does_not_speak_for_what_the_user_warned_of() -> None:
    storage = nn.InMemoryStorage()
    await Desk(storage, ["Noted."]).says(f"Do not pay {PAGES}. My landlord has {USERS}.", "t1")
    for value in (PAGES, USERS):
        await Desk(storage, paying(value), rules=careful(trust="layer:notes")).says("Pay it", "t2")

    assert PAID == [USERS]


async def test_a_fork_knows_the_authors_of_what_it_takes_along() -> None:
    storage = nn.InMemoryStorage()
    desk = Desk(storage, [*LEARN, "Hello.", *paying(PAGES)])
    await desk.says("Look it up", "t1")
    await desk.says("Hello", "t2")
    fork = await desk.harness.memory("t2").rewind(1)
    await desk.harness.execute("Pay it", thread_id=fork)

    assert str(desk.seen[-1]) == "tool:read_page"


@pytest.mark.parametrize("has_first", [True, False])
async def test_a_saved_run_knows_the_authors(tmp_path: Path, has_first: bool) -> None:
    storage = nn.InMemoryStorage()
    first, later = Desk(storage, LEARN), Desk(storage, [*paying(PAGES), *paying(USERS)])
    talks = [(first, "Look it up"), (later, "Pay it"), (later, f"Pay {USERS}")]
    if not has_first:
        await first.says("Look it up", "t0")
        del talks[0]
    runs = []
    for number, (desk, text) in enumerate(talks):
        run = nn.record(desk.harness)
        await desk.says(text, f"t{number + 1}")
        run.save(tmp_path / f"{number}.run")
        runs.append(nn.Run.load(tmp_path / f"{number}.run"))
    frame = backtest(RuleBook(), runs, candidate=careful(trust="layer:notes"), on_unknown="warn")

    assert list(frame[frame["change"] == "newly_denied"]["run_id"]) == [runs[-2].run_id]


async def test_one_run_of_several_threads_knows_the_authors() -> None:
    desk = Desk(nn.InMemoryStorage(), [*LEARN, *paying(PAGES)])
    run = nn.record(desk.harness)
    await desk.says("Look it up", "t1")
    await desk.says("Pay it", "t2")
    frame = backtest(RuleBook(), [run], candidate=careful(trust="layer:notes"))

    assert len(frame[frame["change"] == "newly_denied"]) == 1
    assert str(desk.seen[-1]) == "tool:read_page"


async def test_the_oldest_texts_go_first_and_leave_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    from noetic_nb.runtime._context import kept_texts

    monkeypatch.setattr(kept_texts, "MAX_CHARACTERS", 200)
    storage = nn.InMemoryStorage()
    desk = Desk(storage, [*LEARN, *["Well."] * 12], notes())
    await desk.says("Look it up", "t1")
    for number in range(12):
        await desk.says(f"A long message about other things, number {number}", f"s{number}")
    kept = [await storage.get(key) for key in await storage.list("sources/")]

    assert sum(len(text[2]) for part in kept for text in part) < 300
    assert str(await Desk(storage, paying(PAGES)).says("Pay it", "t2")) == "tool"


class Unreadable(nn.InMemoryStorage):
    """Lists no kept texts while it is `down`."""

    down = False

    async def list(self, prefix: str) -> list[str]:
        if self.down and prefix.startswith("sources/"):
            raise OSError("no disk")
        return await super().list(prefix)


async def test_where_storage_fails_nobody_is_the_user_and_it_heals() -> None:
    storage = Unreadable()
    desk = Desk(storage, ["Noted.", *paying(USERS), *paying(USERS)])
    await desk.says(f"My landlord has {USERS}", "t1")
    storage.down = True
    assert str(await desk.says("Pay my landlord", "t2")) == "tool"
    storage.down = False
    assert str(await desk.says("Pay my landlord", "t3")) == "layer:notes"
