"""Agents whose turns are interrupted at every write and resumed on a copy of the storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import noetic_nb as nn
from tests.matrix import sampled


class Disk(nn.InMemoryStorage):
    """Storage that keeps a copy of itself after each change."""

    def __init__(self, texts: dict[str, str] | None = None) -> None:
        super().__init__()
        self.put(texts or {})
        self.copies: list[dict[str, str]] = []

    def put(self, texts: dict[str, str]) -> None:
        """Store values that are JSON text already, or damaged JSON text."""
        for key, text in texts.items():
            self._put(key, text)

    @property
    def texts(self) -> dict[str, str]:
        """The stored values as JSON text, by key."""
        return self._texts

    async def set(self, key: str, value: Any) -> None:
        await super().set(key, value)
        self.copies.append(dict(self._texts))

    async def delete(self, key: str) -> None:
        await super().delete(key)
        self.copies.append(dict(self._texts))


class GroupedDisk(Disk):
    """The same with atomic groups."""

    async def set_many(self, values: Any, *, delete: Any = (), absent: Any = ()) -> None:
        for key in absent:
            if await self.get(key) is not None:
                raise nn.NoeticError("state_conflict", "taken", key=key)
        for key, value in values.items():
            await nn.InMemoryStorage.set(self, key, value)
        for key in delete:
            await nn.InMemoryStorage.delete(self, key)
        self.copies.append(dict(self._texts))


class Trace:
    """The actions of one process: the steps it ran, by place, and the keys its tools got, by place and arguments."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.keys: list[tuple[str, str]] = []
        self.steps = 0

    def note(self, step: Any, value: Any, ctx: Any) -> None:
        self.ran.append(ctx.place)
        self.steps = ctx.tree.steps


TRACES: list[Trace] = []


@nn.tool
async def pay(amount: int, ctx: Any) -> str:
    """Pay."""
    TRACES[-1].keys.append((ctx.place, ctx.idempotency_key))
    return f"paid {amount}"


def harness(step: Any, store: Any, model: Any = None, *, checkpoints: Any = True, **more: Any) -> nn.AgentHarness:
    """Return a harness that records the steps it runs."""
    TRACES.append(Trace())
    config = nn.AgentConfig(name="cut", step=step, before_step=TRACES[-1].note, **more)
    client = None if model is None else nn.ScriptedModel(model)
    return nn.AgentHarness(config, model=client, storage=store, checkpoints=checkpoints)


def texts_of(log: Any) -> list[str]:
    """Return the texts of a log, without ids."""
    told = []
    for item in log:
        match item["type"]:
            case "message":
                told.append(f"{item['role']}: {''.join(part.get('text', '') for part in item['content'])}")
            case "function_call":
                told.append(f"call {item['name']} {item['arguments']}")
            case _:
                told.append(f"output {item['output']}")
    return told


async def ledger(store: Any, execution_id: str) -> set[str]:
    """Return the places whose end is recorded and known to the record of their execution."""
    prefix = f"execution:{execution_id}:"
    known = {"": (await store.get(f"{prefix}snapshot"))["sequence"]}
    for key in await store.list(f"{prefix}child:"):
        child = await store.get(key)
        known[child["place"]] = child["sequence"]
    found = set()
    for key in await store.list(f"{prefix}ledger:"):
        entry = await store.get(key)
        if int(key.rsplit(":", 1)[1]) < known.get(entry.get("in", ""), -1):
            found.add(entry["path"])
    return found


async def cut_everywhere(
    agent: Callable[[], Any],
    model: Callable[[], Any],
    kinds: Sequence[type[Disk]] = (Disk, GroupedDisk),
    check: Callable[[nn.AgentHarness, nn.AgentReply], Any] = lambda harness, reply: None,
    limits: Any = None,
    **config: Any,
) -> int:
    """Run an agent, interrupt it at every write, resume each copy and compare; return the number of resumed copies."""
    resumed = 0
    for kind in kinds:
        TRACES.clear()
        store = kind()
        first = harness(agent(), store, model(), **config)
        uncut = await first.execute("go", thread_id="t", limits=limits)
        whole, log, seen = TRACES[0], texts_of(first.log("t")), check(first, uncut)
        left = sorted(store.texts)
        for number, texts in sampled(enumerate(store.copies), 12):
            copy = kind(texts)
            again = harness(agent(), copy, model(), **config)
            for execution_id in await again.unfinished():
                before = await ledger(copy, execution_id)
                reply = await again.resume(execution_id)
                where = f"{kind.__name__}, write {number} of {len(store.copies)}"
                trace = TRACES[-1]
                assert (reply.output, reply.text) == (uncut.output, uncut.text), where
                assert texts_of(again.log("t")) == log, where
                assert not before & set(trace.ran), where
                assert set(trace.ran) <= set(whole.ran), where
                assert set(trace.keys) <= set(whole.keys), where
                assert len(trace.keys) == len(set(trace.keys)), where
                assert reply.cost >= uncut.cost, where  # what was asked for twice has cost twice
                assert check(again, reply) == seen, where
                assert sorted(copy.texts) == left, where
                resumed += 1
    return resumed
