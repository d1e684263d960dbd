"""A reply says whether its turn is saved, however the turn ended and was followed."""

from __future__ import annotations

import asyncio
import errno
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.items import input_message
from noetic_nb.memory import MemoryHooks, MemoryLayer, Stop
from noetic_nb.testing import drive_loop
from tests.runtime.factories import texts

pytestmark = pytest.mark.virtual_time

PAID: list[int] = []


class Disk(nn.InMemoryStorage):
    """A store that rejects writes of some keys."""

    full: Callable[[str], bool] = staticmethod(lambda key: False)

    async def set(self, key: str, value: Any) -> None:
        if self.full(key):
            raise OSError(errno.ENOSPC, "No space left on device")
        await super().set(key, value)


def full_disk() -> Disk:
    """Return a store whose every write fails."""
    store = Disk()
    store.full = lambda key: True  # type: ignore[method-assign]
    return store


@nn.tool
def pay(amount: int) -> str:
    """Pay."""
    PAID.append(amount)
    return f"paid {amount}"


def paying(request: nn.ModelRequest) -> Any:
    """Pay once, then say so; fail if the user asks for it."""
    last = request.items[-1]
    if last["type"] == "function_call_output":
        return nn.Reply(f"I have {last['output']}.", cost=0.01)
    said = last["content"][0]["text"]
    return nn.Fault("server_error") if said == "fail" else nn.CallTool("pay", amount=7)


def desk(store: Any = None, on_error: Any = "raise", *, model: Any = paying, **more: Any) -> nn.AgentHarness:
    """Return a harness with checkpoints and an inexhaustible model."""
    PAID.clear()
    config = nn.AgentConfig(name="desk", step=nn.react(model="m", tools=[pay]), **more)
    return nn.AgentHarness(
        config,
        model=nn.ScriptedModel(model),
        storage=store,
        checkpoints=nn.Checkpoints(on_error=on_error),
        diagnostic=lambda *problem: None,
    )


async def unsaved(awaitable: Any) -> nn.NoeticError:
    """Return the error of a turn that was not saved."""
    with pytest.raises(nn.NoeticError) as caught:
        await awaitable
    assert caught.value.kind == "not_saved", caught.value
    return caught.value


async def saved_texts(store: Any, thread_id: str = "default") -> list[str]:
    """Return the thread as a new harness reads it."""
    harness = desk(store)
    await harness.load_thread(thread_id)
    return list(texts(harness.log(thread_id)))


# -- what a reply says ----------------------------------------------------------------------------------------------------


async def test_a_reply_says_whether_it_is_saved_and_nothing_without_checkpoints() -> None:
    config = nn.AgentConfig(name="desk", step=nn.react(model="m"))
    without = nn.AgentHarness(config, model=nn.ScriptedModel(["Hello."]))

    assert (await without.execute("hi")).saved is None
    assert (await desk().execute("pay")).saved is True


async def test_a_full_disk_is_an_error_of_that_turn_which_has_its_reply() -> None:
    store = full_disk()
    harness = desk(store)

    error = await unsaved(harness.execute("pay"))

    reply = error.reply
    assert isinstance(reply, nn.AgentReply)
    assert (reply.text, reply.saved, reply.cost, PAID) == ("I have paid 7.", False, 0.01, [7])
    assert [(warning.code, warning.layer_id, warning.turn) for warning in reply.warnings] == [("not_saved", None, 1)]
    assert "No space left on device" in reply.warnings[0].text
    assert "No space left on device" in str(error)
    assert isinstance(error.__cause__, OSError)
    assert (error.thread_id, error.reason) == ("default", "OSError")


async def test_what_could_not_be_saved_is_saved_with_the_next_turn_and_nothing_is_done_twice() -> None:
    store = full_disk()
    harness = desk(store)
    await unsaved(harness.execute("pay"))
    store.full = lambda key: False  # type: ignore[method-assign]

    reply = await harness.execute("again")

    assert (reply.saved, reply.warnings, PAID) == (True, (), [7, 7])
    assert await saved_texts(store) == [
        "user: pay",
        "assistant: I have paid 7.",
        "user: again",
        "assistant: I have paid 7.",
    ]


async def test_a_warning_is_enough_where_that_was_chosen() -> None:
    reply = await desk(full_disk(), "warn").execute("pay")

    assert (reply.text, reply.saved) == ("I have paid 7.", False)
    assert [warning.code for warning in reply.warnings] == ["not_saved"]


@pytest.mark.parametrize("given", ["ignore", None, True])
def test_another_choice_is_refused(given: Any) -> None:
    with pytest.raises(nn.NoeticConfigError) as caught:
        nn.Checkpoints(on_error=given)

    assert caught.value.code == "INVALID_OPTION"


async def test_the_error_is_in_the_run_before_the_turn_is_completed() -> None:
    harness = desk(full_disk())
    run = nn.record(harness)

    await unsaved(harness.execute("pay"))

    *_, raised, completed = run.events
    assert (raised.kind, getattr(raised, "error_kind", None), completed.kind) == (
        "error_raised",
        "not_saved",
        "turn_completed",
    )


async def test_the_reply_in_an_error_keeps_its_type_and_can_be_pickled() -> None:
    secret = "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0" * 2

    error = await unsaved(desk(full_disk(), model=lambda request: f"The key is {secret}.").execute("hi"))
    again = pickle.loads(pickle.dumps(error))

    assert error.reply.text == again.reply.text == f"The key is {secret}."
    assert secret not in str(error)


# -- however a turn is followed -------------------------------------------------------------------------------------------


async def test_a_stream_gives_its_text_and_then_the_error() -> None:
    stream = desk(full_disk()).stream("pay")
    pieces = []

    async def follow() -> None:
        async for piece in stream.text:
            pieces.append(piece)

    await unsaved(follow())

    assert "".join(pieces) == "I have paid 7."
    assert (await unsaved(stream.reply)).reply.text == "I have paid 7."
    quiet = desk(full_disk(), "warn").stream("pay")
    assert (await quiet.reply).saved is False


def test_code_without_await_gets_it_too() -> None:
    with pytest.raises(nn.NoeticError) as caught:
        nn.run_sync(desk(full_disk()).execute("pay"))

    assert (caught.value.kind, caught.value.reply.saved) == ("not_saved", False)


async def test_everybody_whose_message_a_turn_took_gets_its_error() -> None:
    harness = desk(full_disk())

    results = await asyncio.gather(*[harness.execute(f"pay {n}") for n in range(3)], return_exceptions=True)

    assert [getattr(result, "kind", result) for result in results] == ["not_saved"] * 3
    assert [result.reply.turn_id for result in results][1:] == [results[1].reply.turn_id] * 2  # type: ignore[union-attr]


# -- however a turn ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("store", "is_saved"), [(Disk, True), (full_disk, False)])
async def test_a_turn_that_failed_keeps_its_error_which_says_whether_it_is_saved(store: Any, is_saved: bool) -> None:
    with pytest.raises(nn.NoeticError) as caught:
        await desk(store()).execute("fail")

    assert (caught.value.kind, caught.value.saved) == ("llm_failed", is_saved)
    notes = getattr(caught.value, "__notes__", [])
    assert notes == ([] if is_saved else ["The turn is not saved: OSError: [Errno 28] No space left on device"])


async def test_a_turn_that_was_cancelled_says_so_in_its_cancellation() -> None:
    harness = desk(full_disk(), model=lambda request: asyncio.sleep(60))
    turn = asyncio.create_task(harness.execute("hi"))
    await asyncio.sleep(1)
    await harness.cancel()

    with pytest.raises(nn.NoeticError) as caught:
        await turn

    assert (caught.value.kind, caught.value.saved) == ("cancelled", False)


async def test_a_turn_that_a_layer_stopped_is_reported_like_any_other() -> None:
    async def end(params: Any) -> Any:
        return {"stop": Stop({"kind": "circuit_break"}, "Start again.")}

    layer = MemoryLayer(id="brake", slot=1, scope="thread", hooks=MemoryHooks(recall=end))

    error = await unsaved(desk(full_disk(), memory=[layer]).execute("pay"))

    assert (error.reply.text, error.reply.stopped["kind"], error.reply.saved) == (
        "Start again.",
        "circuit_break",
        False,
    )


async def test_an_execution_that_was_held_open_says_so_when_it_ends() -> None:
    harness = desk(full_disk())

    async def hold() -> None:
        async with harness.execution() as ctx:
            await harness.run(nn.step.llm("ask", model="m", tools=[pay]), "pay", ctx)

    error = await unsaved(hold())

    assert error.reply is None
    assert PAID == [7]


async def test_a_turn_that_is_resumed_says_whether_it_is_saved() -> None:
    store, cut = Disk(), Disk()

    def model(request: nn.ModelRequest) -> Any:
        if request.items[-1]["type"] == "function_call_output":
            vars(cut).update(_texts=dict(store._texts), _keys=list(store._keys))
        return paying(request)

    await desk(store, model=model).execute("pay")
    cut.full = lambda key: ":part:" in key  # type: ignore[method-assign]
    again = desk(cut)
    (execution_id,) = await again.unfinished()

    error = await unsaved(again.resume(execution_id))

    assert error.reply.text == "I have paid 7."


# -- what counts as saved -------------------------------------------------------------------------------------------------


async def test_a_turn_whose_layer_could_not_be_written_is_not_saved_and_names_it() -> None:
    store = Disk()
    store.full = lambda key: key.startswith("layers/working-memory/")  # type: ignore[method-assign]

    def model(request: nn.ModelRequest) -> Any:
        is_first = request.items[-1]["type"] == "message"
        return nn.CallTool("working-memory/update", city="Rome") if is_first else "Noted."

    error = await unsaved(desk(store, model=model, memory=[nn.working_memory()]).execute("I am in Rome"))

    assert "working-memory" in str(error)
    assert error.reply.text == "Noted."
    assert len(await saved_texts(store)) == 2, "the conversation is there all the same"


async def test_a_layer_of_a_child_that_could_not_be_written_counts_too() -> None:
    store = Disk()
    store.full = lambda key: key.startswith("layers/note/")  # type: ignore[method-assign]

    async def keep(params: Any) -> Any:
        return {"state": {"n": 1}}

    note = MemoryLayer(id="note", slot=1, scope="thread", hooks=MemoryHooks(store=keep))
    child = nn.spawn("child", nn.step.llm("small", model="m"), memory=[note])
    config = nn.AgentConfig(name="desk", step=child)
    harness = nn.AgentHarness(
        config,
        model=nn.ScriptedModel(["Done."]),
        storage=store,
        checkpoints=True,
        diagnostic=lambda *problem: None,
    )

    error = await unsaved(harness.execute("go"))

    assert "'note'" in str(error)


async def test_a_layer_that_is_written_at_the_second_try_is_saved() -> None:
    store = Disk()
    failures = iter([True])
    store.full = lambda key: key.startswith("layers/") and next(failures, False)  # type: ignore[method-assign]
    cities = iter(["Rome", "Oslo"])

    def model(request: nn.ModelRequest) -> Any:
        city = next(cities, None)
        return nn.CallTool("working-memory/update", city=city) if city else "Noted."

    reply = await desk(store, model=model, memory=[nn.working_memory()]).execute("hi")

    assert reply.saved is True
    assert next(failures, None) is None, "one write has failed"


async def test_a_write_whose_answer_was_lost_is_saved() -> None:
    class Mute(Disk):
        async def set(self, key: str, value: Any) -> None:
            await super().set(key, value)
            if ":part:" in key:
                raise OSError("connection reset")

    store = Mute()

    assert (await desk(store).execute("pay")).saved is True
    assert len(await saved_texts(store)) == 2


async def test_a_turn_whose_checkpoints_could_not_be_removed_is_saved() -> None:
    class Sticky(Disk):
        async def delete(self, key: str) -> None:
            raise OSError("busy")

    store = Sticky()

    assert (await desk(store).execute("pay")).saved is True
    assert len(await saved_texts(store)) == 2


async def test_a_checkpoint_that_failed_on_the_way_is_no_matter_once_the_turn_is_saved() -> None:
    store = Disk()
    store.full = lambda key: key.startswith("execution:")  # type: ignore[method-assign]

    reply = await desk(store).execute("pay")

    assert (reply.saved, reply.warnings) == (True, ())


def test_a_store_that_hangs_is_reported_too() -> None:
    class Stuck(Disk):
        async def set(self, key: str, value: Any) -> None:
            if ":part:" in key:
                await asyncio.Event().wait()
            await super().set(key, value)

    error = drive_loop(unsaved(desk(Stuck()).execute("pay")))

    assert "did not answer" in str(error)


# -- two writers ----------------------------------------------------------------------------------------------------------


async def overlapping(store: Any) -> tuple[nn.AgentHarness, nn.AgentHarness]:
    """Return two harnesses that have read the same thread."""
    one, two = desk(store), desk(store)
    await one.execute("pay", thread_id="t")
    await two.load_thread("t")
    return one, two


async def test_a_conflict_is_in_the_reply_of_the_turn_that_lost() -> None:
    store = Disk()
    one, two = await overlapping(store)
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(request: nn.ModelRequest) -> Any:
        begun.set()
        await go.wait()
        return "Slow."

    two = desk(store, model=slow)
    losing = asyncio.create_task(two.execute("mine", thread_id="t"))
    await begun.wait()
    await one.execute("pay", thread_id="t")
    go.set()
    error = await unsaved(losing)

    assert (error.reply.text, error.reason) == ("Slow.", "state_conflict")
    assert "close_thread()" in str(error)
    assert "next turn of the thread" not in str(error)


async def test_a_part_that_is_overwritten_in_a_store_without_groups_is_a_conflict() -> None:
    class Slow(Disk):
        """A store with slow writes, so that two of them overlap."""

        async def set(self, key: str, value: Any) -> None:
            await asyncio.sleep(0.01)
            await super().set(key, value)
            await asyncio.sleep(0.01)

    store = Slow()
    await desk(store).execute("pay", thread_id="t")
    results = await asyncio.gather(
        *[desk(store).execute(word, thread_id="t") for word in ("one", "two")], return_exceptions=True
    )

    saved = [result for result in results if isinstance(result, nn.AgentReply)]
    lost = [result for result in results if isinstance(result, nn.NoeticError)]
    assert (len(saved), [error.kind for error in lost]) == (1, ["not_saved"])
    assert lost[0].reason == "state_conflict"
    words = [line for line in await saved_texts(store, "t") if line.startswith("user")]
    assert len(words) == 2
    assert words[1] == f"user: {'two' if results[0] is lost[0] else 'one'}"


async def test_a_conflict_that_is_known_before_a_model_is_called_costs_nothing() -> None:
    store = Disk()
    one, two = await overlapping(store)
    one.append("t", [input_message("early")])
    one._threads._ready = nothing  # type: ignore[attr-defined]  # it has looked, and the other writes right after that
    await two.execute("pay", thread_id="t")
    PAID.clear()

    with pytest.raises(nn.NoeticError) as caught:
        await one.execute("pay", thread_id="t")

    assert (caught.value.kind, caught.value.saved, PAID) == ("state_conflict", False, [])


async def nothing(thread: Any) -> None:
    """Do nothing."""
