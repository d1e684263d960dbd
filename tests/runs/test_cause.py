"""The cause of a call: the first author of each value, as live rules saw it, in runs of every kind."""

from __future__ import annotations

import asyncio
import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.events import ItemsAppended, SteeringDecided, ToolCalled, TurnStarted, Where
from noetic_nb.items import input_message, item_text
from noetic_nb.lab._recorded_calls import calls_of
from noetic_nb.memory import MemoryHooks, MemoryLayer
from noetic_nb.memory.params import BeforeToolCallParams
from noetic_nb.testing import FakeClock, SeededIds
from tests.matrix import matrix, several
from tests.widgets.hostile_texts import HOSTILE_TEXTS

COLUMNS = ["argument", "value", "kind", "name", "item", "turn", "via"]
PAGES, USERS, MADE = "GB29NWBK60161331926819", "DE89370400440532013000", "FR7630006000011234567890189"
WHERE = Where("t1", "e1", 1)


@nn.tool
def read_page(url: str) -> dict[str, Any]:
    """Read a page."""
    return {"about": "rent", "iban": PAGES, "open": True, "rows": [{"id": 4711}]}


@nn.tool
def pay(recipient: str, amount: float = 0.0, lines: list[Any] | None = None) -> str:
    """Pay."""
    return "paid"


def notes(scope: Any = "resource") -> MemoryLayer:
    """Keep all texts of a conversation."""

    def store(p: Any) -> dict[str, Any]:
        texts = [item.get("output") or item_text(item) for item in p.log]
        return {"state": {"texts": [*(p.state or {"texts": []})["texts"], *texts]}}

    recall = lambda p: "\n".join(p.state["texts"]) if p.state else None  # noqa: E731
    return MemoryLayer(id="notes", slot=100, scope=scope, hooks=MemoryHooks(recall=recall, store=store))


class Desk:
    """A recorded agent with a rule that notes the origin of each value in each payment, by the path of the value."""

    def __init__(self, script: list[Any], *memory: Any, step: Any = None, ids: int = 1) -> None:
        self.seen: list[dict[str, Any]] = []
        book = nn.RuleBook()

        @book.rule("look", on="before_tool_call", tools=["pay"])
        def look(call: Any) -> None:
            found: dict[str, Any] = {}
            self._note(call, "", call.tool_args, found)
            self.seen.append(found)

        config = nn.AgentConfig(
            name="desk",
            step=step or nn.react(model="m", tools=[read_page, pay], instructions="The office is at SYS-77-OFFICE."),
            memory=[*memory, nn.steering(book)],
        )
        self.harness = nn.AgentHarness(
            config, model=nn.ScriptedModel(script), clock=FakeClock(), ids=SeededIds(ids), checkpoints=False
        )
        self.run = nn.record(self.harness)

    def _note(self, call: Any, path: str, value: Any, found: dict[str, Any]) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                self._note(call, f"{path}.{key}" if path else key, inner, found)
        elif isinstance(value, list | tuple):
            for at, inner in enumerate(value):
                self._note(call, f"{path}[{at}]", inner, found)
        elif value is not None and value != "":
            found[path] = call.origin(value)

    def says(self, text: str, thread: str = "t1") -> None:
        asyncio.run(self.harness.execute(text, thread_id=thread, resource_id="ann"))


def rows(run: nn.Run, which: Any = -1, **options: Any) -> dict[str, list[Any]]:
    frame = run.cause(which, **options)
    assert list(frame.columns) == COLUMNS
    return {row[0]: [None if cell is pd_missing(cell) else cell for cell in row[1:]] for row in frame.values.tolist()}


def pd_missing(cell: Any) -> Any:
    import pandas

    return cell if cell is pandas.NA else object()


def paying(**args: Any) -> list[Any]:
    return [nn.CallTool("pay", **args), "Done."]


def test_user_tool_system_and_model_are_told_apart_in_nested_arguments() -> None:
    lines = [{"id": 4711, "to": "SYS-77-OFFICE"}, {"paid": True, "note": "", "why": None}]
    desk = Desk([nn.CallTool("read_page", url="x"), *paying(recipient=PAGES, amount=98.5, lines=[*lines, MADE])])
    desk.says("Pay 98.50 for the rent")

    found = rows(desk.run)

    assert found == {
        "recipient": [PAGES, "tool", "read_page", 2, 1, ()],
        "amount": [98.5, "user", None, 0, 1, ()],
        "lines[0].id": [4711, "tool", "read_page", 2, 1, ()],
        "lines[0].to": ["SYS-77-OFFICE", "system", None, None, None, ()],
        "lines[1].paid": [True, "tool", "read_page", 2, 1, ()],
        "lines[2]": [MADE, "model", None, 3, 1, ()],
    }
    assert {path: origin.kind for path, origin in desk.seen[0].items()} == {path: row[1] for path, row in found.items()}


def test_a_memory_across_turns_and_threads_names_the_author_and_the_layer() -> None:
    script = [nn.CallTool("read_page", url="x"), "Read.", *paying(recipient=PAGES), *paying(recipient=USERS)]
    desk = Desk([*script, *paying(recipient=PAGES)], notes())
    desk.says(f"My landlord has {USERS}; look up the page")
    desk.says("Pay it", "t2")
    desk.says("Pay my landlord", "t3")
    desk.says("Pay it here")

    of_page, of_user, in_thread = [rows(desk.run, place)["recipient"] for place in (1, 2, 3)]

    # Their items are in the log of another thread.
    assert of_page == [PAGES, "tool", "read_page", None, None, ("notes",)]
    assert of_user == [USERS, "layer", "notes", None, None, ("notes",)]
    assert in_thread == [PAGES, "tool", "read_page", 2, 1, ()]


def test_a_call_of_a_child_knows_its_own_log_and_that_of_its_parent() -> None:
    inner = nn.step.llm("inner", model="m", tools=[read_page, pay], tool_rounds=4)
    given: Any = {"strategy": "custom", "build": lambda value, ctx: [input_message(f"Pay {USERS} or {MADE}")]}
    child = nn.step.spawn("child", inner, context_in=given)
    outer = nn.step.llm("outer", model="m")
    step = nn.step.loop("all", (outer, child), until=nn.until.max_steps(1))
    script = [
        "x",
        nn.CallTool("read_page", url="x"),
        *[nn.CallTool("pay", recipient=to) for to in (PAGES, USERS, MADE)],
    ]
    desk = Desk([*script, "ok"], step=step)
    desk.says(f"Pay {USERS}")

    of_tool, of_user, of_model = [rows(desk.run, place)["recipient"] for place in (1, 2, 3)]

    assert of_tool == [PAGES, "tool", "read_page", None, 1, ()]
    assert of_user == [USERS, "user", None, 0, 1, ()]
    assert of_model[1] == "model"


def test_live_saved_loaded_and_copied_runs_answer_alike(tmp_path: Path) -> None:
    desk = Desk([nn.CallTool("read_page", url="x"), "Read.", *paying(recipient=PAGES, amount=3)], notes())
    desk.says("Look up the page")
    desk.says("Pay 3 to it", "t2")
    loaded = nn.load_run(desk.run.save(tmp_path / "run.jsonl.gz"))

    for other in (loaded, desk.run.copy(), pickle.loads(pickle.dumps(desk.run))):
        assert rows(other) == rows(desk.run)


def test_a_run_that_grows_and_is_asked_in_between_answers_as_one_that_is_asked_at_the_end() -> None:
    desk = Desk([nn.CallTool("read_page", url="x"), *paying(recipient=PAGES), *paying(recipient=USERS)])
    desk.says("Look up the page and pay")
    first = rows(desk.run)
    desk.says(f"Now pay {USERS}")

    assert rows(desk.run)["recipient"] == [USERS, "user", None, 6, 2, ()]
    assert rows(desk.run, 1) == first == rows(desk.run.copy(), 1)


def test_a_run_within_a_bound_still_knows_the_calls_that_it_has() -> None:
    desk = Desk([*paying(recipient=USERS)] * 8)
    bounded = nn.record(desk.harness, max_turns=3)
    for turn in range(8):
        desk.says(f"Pay {USERS} again, {turn}")
        call = rows(bounded)["recipient"]
        assert call[:2] == [USERS, "user"]

    assert bounded.meta["dropped"]
    assert call[3] >= 4


def test_an_imported_run_answers() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"url": "x"}'}}
    pay_call = {"name": "pay", "arguments": json.dumps({"to": PAGES, "lines": [{"id": "A-17"}], "memo": "none of it"})}
    run = nn.Run.from_messages(
        [
            {"role": "user", "content": "Pay the bill of order A-17"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": json.dumps({"iban": PAGES})},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c2", "type": "function", "function": pay_call}],
            },
            {"role": "tool", "tool_call_id": "c2", "content": "paid"},
        ]
    )

    found = rows(run)

    assert found["to"] == [PAGES, "tool", "read", 2, 1, ()]
    assert found["lines[0].id"] == ["A-17", "user", None, 0, 1, ()]
    assert found["memo"] == ["none of it", "model", None, 3, 1, ()]


def test_a_decision_a_call_its_place_and_its_seq_mean_the_same() -> None:
    desk = Desk([nn.CallTool("read_page", url="x"), *paying(recipient=PAGES)])
    desk.says("Pay it")
    run = desk.run
    call = run.select(ToolCalled)[-1]
    decision = [each for each in run.select(SteeringDecided) if each.tool_name == "pay"][-1]
    tables = [run.to_frame(table).query("tool_name == 'pay'") for table in ("tools", "ledger")]
    seqs = [table["seq"].iloc[-1] for table in tables]

    meant = [rows(run, each) for each in (1, -1, call, decision, run.to_frame("tools").index[-1])]
    meant += [rows(run, None, seq=seq) for seq in seqs]

    assert [each["recipient"] for each in meant] == [[PAGES, "tool", "read_page", 2, 1, ()]] * 7


def test_what_came_after_the_decision_does_not_count() -> None:
    """Of two equal calls, the first was made before anybody had the value."""
    events: list[Any] = [
        TurnStarted(WHERE, 0.0, "u1", 0, 1, "Go"),
        ItemsAppended(WHERE, 0.0, 0, (input_message("Go"),), "user"),
    ]
    decided = SteeringDecided(WHERE, 1.0, "steering", "before_tool_call", "pay", {"to": PAGES}, "allow", None, (), 0.1)
    events += [decided, ToolCalled(WHERE, 2.0, "read", "c0", {}, f"It is {PAGES}", 1.0, "ok")]
    events += [ToolCalled(WHERE, 3.0, "pay", "c1", {"to": PAGES}, "paid", 2.0, "ok")]
    run = nn.Run(
        events=[*events, *[each.__class__(**{**_fields(each), "t_ms": 9.0}) for each in (decided, events[-1])]]
    )

    assert [rows(run, place)["to"][1] for place in (1, 2)] == ["model", "tool"]


def _fields(event: Any) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


def test_what_a_layer_sent_in_an_earlier_turn_is_the_models_where_the_model_wrote_it_down() -> None:
    recall = lambda p: "Known: ABC-7" if p.ctx.turn == 1 else None  # noqa: E731
    layer = MemoryLayer(id="knows", slot=100, scope="execution", hooks=MemoryHooks(recall=recall))
    desk = Desk([*paying(recipient="ABC-7"), *paying(recipient="ABC-7")], layer)
    desk.says("Pay")
    desk.says("Again")

    found = [rows(desk.run, place)["recipient"] for place in (0, 1)]

    assert [seen["recipient"].text for seen in desk.seen] == ["layer:knows", "model"]
    assert found == [["ABC-7", "layer", "knows", None, None, ("knows",)], ["ABC-7", "model", None, 1, 1, ()]]


def call_of(args: Any, *, status: Any = "ok", raw: Any = None, said: str = "Go") -> nn.Run:
    asked = ItemsAppended(WHERE, 0.0, 0, (input_message(said, item_id="i0"),), "user")
    return nn.Run(events=[asked, ToolCalled(WHERE, 1.0, "pay", "c1", args, "", 1.0, status, raw_args=raw)])


def test_secrets_are_replaced_as_in_the_other_tables() -> None:
    secret = "sk-proj-" + "aB3dE5gH7jK9" * 4
    args = {
        "password": "hunter2",
        "deep": {"api_key": secret, "n": [secret, "x"]},
        secret: 1,
        "login": {"secret": {"a": "b"}},
    }
    run = call_of(args, said=f"Use {secret} and hunter2")
    shown = run.to_frame("tools")["args"].iloc[-1]

    frame = run.cause(0)

    assert secret not in frame.to_string()
    assert "hunter2" not in frame.to_string()
    values = dict(zip(frame["argument"], frame["value"], strict=True))
    assert values["password"] == shown["password"]
    assert values["deep.api_key"] == shown["deep"]["api_key"]
    assert (values["deep.n[1]"], values["login.secret"]) == ("x", shown["login"]["secret"])
    assert list(frame["kind"][:2]) == ["user", "user"]


@matrix("name", list(HOSTILE_TEXTS), keep=12, start=4)
def test_hostile_values_keep_their_text_and_their_author(name: str) -> None:
    text = HOSTILE_TEXTS[name]
    run = call_of({"a": [text], text[:40]: {text[:40]: 1}}, said=text)
    found = run.cause(0)
    [call] = calls_of(run)
    assert isinstance(call.params, BeforeToolCallParams)

    assert list(found["kind"]) == [call.params.origin(value).kind for value in (text, 1) if value]
    if text:
        assert found["value"][0] == run.to_frame("tools")["args"][0]["a"][0]


def test_deep_wide_and_odd_values() -> None:
    deep: Any = "x"
    for _ in range(60):
        deep = [deep]
    wide = {f"k{n}": n for n in range(3_000)}
    found = call_of({"deep": deep, "wide": wide, "a b": -0.0, "big": 10**400, "né": "ü\ud800"}).cause(0)

    assert len(found) == 3_005
    assert found["argument"][0] == "deep" + "[0]" * 60
    assert list(found["argument"][-4:]) == ['["a b"]', 'big["$unserializable"]', "big.text", "né"]


def test_calls_without_arguments_that_fit_answer_for_what_the_model_wrote() -> None:
    assert rows(call_of(None, status="invalid_args", raw={"to": "Go"}), 0)["to"][:2] == ["Go", "user"]
    for raw in (None, "no object", [1]):
        empty = call_of(None, status="unknown", raw=raw).cause(0)
        assert (len(empty), list(empty.columns)) == (0, COLUMNS)
        assert [str(kind) for kind in empty.dtypes] == ["object"] * 4 + ["Int64"] * 2 + ["object"]


def test_a_decision_about_a_response_has_no_rows() -> None:
    decided = SteeringDecided(WHERE, 1.0, "steering", "after_model_call", None, None, "deny", "No.", ("r",), 0.1)

    assert nn.Run(events=[decided]).cause(decided).empty


@pytest.mark.parametrize(
    "given", [1, -2, "pay", True, 0.0, None, [0], 10**30, TurnStarted(WHERE, 0.0, "u1", 0, 1, "Go")]
)
def test_what_is_no_call_is_refused(given: Any) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        call_of({"a": 1}).cause(given)

    assert caught.value.code == "UNKNOWN_CALL"


def test_events_of_other_runs_and_other_seqs_are_refused() -> None:
    run = call_of({"a": 1})
    decided = SteeringDecided(WHERE, 1.0, "steering", "before_tool_call", "pay", {}, "deny", "No.", ("r",), 0.1)
    other = call_of({"a": 2}).select(ToolCalled)[0]
    for code, positional, options in (
        ("UNKNOWN_DECISION", decided, {}),
        ("UNKNOWN_CALL", other, {}),
        ("UNKNOWN_CALL", 0, {"seq": 1}),
        ("UNKNOWN_DECISION", None, {"seq": 0}),
        ("UNKNOWN_DECISION", None, {"seq": -1}),
        ("UNKNOWN_DECISION", None, {"seq": "1"}),
    ):
        with pytest.raises(NoeticConfigError) as caught:
            run.cause(positional, **options)
        assert caught.value.code == code


VALUES = [PAGES, USERS, MADE, "SYS-77-OFFICE", "A-17", "rent", "green", 4711, 98.5, 3, True, False]


def random_desk(seed: int) -> Desk:
    """Return an agent after a conversation with values of users, tools, memories, instructions and its own in random places."""
    dice = random.Random(seed)

    def value(depth: int = 0) -> Any:
        kind = dice.random()
        if depth < 2 and kind < 0.15:
            return [value(depth + 1) for _ in range(dice.randint(0, 3))]
        if depth < 2 and kind < 0.3:
            return {dice.choice("abc"): value(depth + 1) for _ in range(dice.randint(1, 3))}
        return dice.choice([*VALUES, f"made {dice.randint(1, 30)}", dice.randint(0, 9), "", None])

    def turn() -> list[Any]:
        calls: list[Any] = []
        for _ in range(dice.randint(0, 4)):
            to = str(dice.choice(VALUES))
            made = [nn.CallTool("pay", recipient=to, amount=dice.choice([0.0, 3, 98.5]), lines=[value()])]
            made += [nn.CallTool("read_page", url=dice.choice(["x", PAGES]))]
            dice.shuffle(made)
            calls.append(nn.Reply(tool_calls=made[: dice.randint(1, 2)]))
        return [*calls, dice.choice(["Done.", f"It is {MADE}."])]

    memory = [notes(dice.choice(["thread", "resource", "global"]))] if dice.random() < 0.6 else []
    turns = [turn() for _ in range(dice.randint(1, 4))]
    desk = Desk([each for one in turns for each in one], *memory, ids=seed * 1_000 + 1)
    for _ in turns:
        words = " and ".join(map(str, dice.sample(VALUES, dice.randint(0, 3))))
        desk.says(f"Please pay {words}", dice.choice(["t1", "t1", "t2"]))
    return desk


@pytest.mark.matrix
def test_each_row_is_the_origin_that_a_rule_saw_live(tmp_path: Path) -> None:
    compared, kinds, chains = 0, set[str](), 0
    for seed in range(several(25, 100)):
        desk = random_desk(seed)
        decisions = [each for each in desk.run.select(SteeringDecided) if each.tool_name == "pay"]
        assert len(decisions) == len(desk.seen)
        of_decisions = [desk.run.cause(each) for each in decisions]
        for decision, frame, seen in zip(decisions, of_decisions, desk.seen, strict=True):
            assert_same(desk.run, decision, frame, seen, seed)
        loaded = desk.run.copy() if seed % 10 else nn.load_run(desk.run.save(tmp_path / "run.jsonl.gz"))
        # No calls run concurrently here: they end in the order of their decisions.
        of_calls = [loaded.cause(at) for at, call in enumerate(loaded.select(ToolCalled)) if call.name == "pay"]
        assert [frame.to_dict() for frame in of_calls] == [frame.to_dict() for frame in of_decisions]
        compared += sum(map(len, desk.seen))
        kinds |= {origin.kind for seen in desk.seen for origin in seen.values()}
        chains += sum(len(origin.chain) > 1 for seen in desk.seen for origin in seen.values())

    print(f"{compared:,} values compared, {chains} of them with a chain; kinds {', '.join(sorted(kinds))}")
    assert compared > several(250, 1_000)
    assert kinds == {"user", "system", "tool", "layer", "model"}
    assert chains > several(1, 10)


def assert_same(run: nn.Run, decision: SteeringDecided, frame: Any, seen: dict[str, Any], seed: int) -> None:
    assert list(frame["argument"]) == list(seen), seed
    places = {
        (event.where.thread_id, item.get("id")): (place, event.where.turn)
        for event in run.select(ItemsAppended)
        for place, item in enumerate(event.items, event.start)
    }
    for row, origin in zip(frame.itertuples(), seen.values(), strict=True):
        told = (seed, row.argument, row.value, str(origin))
        assert (row.kind, row.name) == (origin.kind, origin.name), told
        assert row.via == tuple([link.name for link in origin.chain if link.kind == "layer"]), told
        wrote = places.get((decision.where.thread_id, origin.chain[0].item))
        assert (None if wrote is None else (row.item, row.turn)) == wrote, told
