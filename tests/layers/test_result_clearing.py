"""Clearing of tool results: what is sent of old results, what can be read again, and what never changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import (
    Item,
    assistant_message,
    function_call,
    function_call_output,
    input_message,
    item_tokens,
    parse_item,
)
from noetic_nb.items._build import unresolved_positions
from noetic_nb.layers import history_window, tool_result_clearing
from noetic_nb.memory import MemoryLayer
from tests.items.strategies import ITEMS
from tests.layers.layer_driver import Conversation

BIG = "result " * 400  # 700 tokens


def searches(count: int, output: str = BIG) -> list[Item]:
    """Return a question and so many calls of a tool, each with its output."""
    items = [input_message("Find it.", item_id="q")]
    for n in range(1, count + 1):
        items += [
            function_call("search", f'{{"q": "place {n}"}}', f"c{n}", item_id=f"call{n}"),
            function_call_output(f"c{n}", f"{n}: {output}", item_id=f"out{n}"),
        ]
    return items


async def sent(layer: MemoryLayer, items: list[Item]) -> list[Item]:
    talk = Conversation(layer)
    return list(await talk.stack.project_history(talk.context(), tuple(items)))


def cleared(items: list[Item]) -> list[str]:
    return [item["id"] for item in items if item["type"] == "function_call_output" and "was cleared" in item["output"]]


async def test_old_results_are_one_line_each_and_their_calls_stay() -> None:
    items = searches(6)

    shown = await sent(tool_result_clearing(2_000, clear_at_least=0, keep=2), [*items, assistant_message("Done.")])

    assert cleared(shown) == ["out1", "out2", "out3", "out4"]
    assert shown[2]["output"] == "[Result 1 was cleared: 701 tokens. tool-result-clearing/read_result shows it again.]"
    assert [(item["id"], item["type"], item.get("callId")) for item in shown[:-1]] == [
        (item["id"], item["type"], item.get("callId")) for item in items
    ]


async def test_nothing_is_cleared_below_the_threshold_or_where_too_little_would_be() -> None:
    items = [*searches(6), assistant_message("Done.")]

    short = await sent(tool_result_clearing(sum(map(item_tokens, items)), clear_at_least=0, keep=0), items)
    little = await sent(tool_result_clearing(100, clear_at_least=5_000, keep=0), items)
    enough = await sent(tool_result_clearing(100, clear_at_least=3_000, keep=0), items)

    assert (cleared(short), cleared(little)) == ([], [])
    assert cleared(enough) == ["out1", "out2", "out3", "out4", "out5"]


async def test_after_a_clearing_the_history_has_to_grow_again() -> None:
    layer = tool_result_clearing(3_000, clear_at_least=0, keep=0)

    counts = [len(cleared(await sent(layer, [*searches(size), assistant_message("Done.")]))) for size in range(11)]

    # A call and its result are some 760 tokens, and some 80 once it is cleared: three more whole ones are too many each time.
    assert counts == [0, 0, 0, 0, 3, 3, 3, 6, 6, 6, 9]


async def test_a_result_that_the_model_has_not_answered_to_is_sent_whole() -> None:
    layer = tool_result_clearing(0, clear_at_least=0, keep=0)

    assert cleared(await sent(layer, searches(2))) == ["out1"]
    assert cleared(await sent(layer, [*searches(2), input_message("Well?")])) == ["out1"]
    assert cleared(await sent(layer, [*searches(2), assistant_message("There.")])) == ["out1", "out2"]


async def test_tools_that_are_named_and_results_shorter_than_the_line_are_never_cleared() -> None:
    items = [*searches(3), assistant_message("Done.")]

    named = await sent(tool_result_clearing(0, clear_at_least=0, keep=0, exclude="search"), items)
    small = await sent(
        tool_result_clearing(0, clear_at_least=0, keep=0), [*searches(3, "ok"), assistant_message("Done.")]
    )

    assert (cleared(named), cleared(small)) == ([], [])


async def test_the_model_is_told_what_was_cleared_newest_first_and_can_read_it_again() -> None:
    talk = Conversation(tool_result_clearing(2_000, clear_at_least=0, keep=2))
    talk.log.extend([*searches(6), assistant_message("Done.")])

    index = (await talk.begin("And?")).splitlines()
    short = await talk.shown(budget=30)
    again = await talk.call("tool-result-clearing", "read_result", number=2)

    assert index[0] == "<cleared_results>"
    assert index[1] == '4. search({"q": "place 4"}): 701 tokens'
    assert [line.split(".")[0] for line in index[1:-1]] == ["4", "3", "2", "1"]
    assert "4. search" in short
    assert "1. search" not in short
    assert again == f"2: {BIG}"


async def test_a_long_result_is_read_in_parts_and_a_wrong_number_is_answered() -> None:
    talk = Conversation(tool_result_clearing(0, clear_at_least=0, keep=0))
    talk.log.extend([*searches(1, "x" * 45_000), assistant_message("Done.")])
    await talk.begin("And?")

    parts = [await talk.call("tool-result-clearing", "read_result", number=1, offset=n) for n in (0, 20_000, 40_000)]
    wrong = await talk.call("tool-result-clearing", "read_result", number=9)
    behind = await talk.call("tool-result-clearing", "read_result", number=1, offset=99_999)

    assert parts[0].endswith("[25003 more characters: read on with offset 20000.]")
    assert "".join(part.split("\n[")[0] for part in parts) == "1: " + "x" * 45_000
    assert wrong == "Not done: no result 9 was cleared. Cleared are: 1."
    assert behind == "Not done: result 1 has 45003 characters; begin within them."


async def test_an_output_of_several_parts_is_cleared_and_read_as_json() -> None:
    image = {
        "type": "function_call_output",
        "callId": "c1",
        "output": [{"type": "input_image", "imageUrl": "a" * 4_000}],
    }
    talk = Conversation(tool_result_clearing(0, clear_at_least=0, keep=0))
    talk.log.extend([function_call("look", "{}", "c1"), parse_item(image), assistant_message("A cat.")])
    await talk.begin("And?")

    shown = await talk.stack.project_history(talk.context(), talk.log.items)

    assert shown[1]["output"].startswith("[Result 1 was cleared")
    assert '"type":"input_image"' in await talk.call("tool-result-clearing", "read_result", number=1)


async def test_a_window_behind_it_sends_the_newest_of_what_is_left() -> None:
    talk = Conversation(history_window(2), tool_result_clearing(1_000, clear_at_least=0, keep=1))
    items = [*searches(6), assistant_message("Done.")]

    shown = await talk.stack.project_history(talk.context(), tuple(items))

    assert cleared(list(shown)) == ["out4", "out5"]
    assert unresolved_positions(shown) == set()


@given(st.lists(ITEMS | st.builds(lambda n: searches(1, "word " * n)[2], st.integers(0, 200)), max_size=30), st.data())
def test_clearing_only_ever_adds_to_what_was_cleared(items: list[dict[str, Any]], data: st.DataObject) -> None:
    import asyncio

    log = [parse_item({**item, "id": f"i{n}"}) for n, item in enumerate(items)]
    keep, at_least, threshold = (data.draw(st.integers(0, most)) for most in (3, 60, 200))
    growing = Conversation(tool_result_clearing(threshold, clear_at_least=at_least, keep=keep))
    whole = [item.copy() for item in log]

    async def run() -> None:
        before: set[str] = set()
        for size in range(len(log) + 1):
            shown = list(await growing.stack.project_history(growing.context(), tuple(log[:size])))
            fresh = await sent(tool_result_clearing(threshold, clear_at_least=at_least, keep=keep), log[:size])
            assert shown == fresh, "an execution that was here before and one that begins now send the same"
            assert [item["id"] for item in shown] == [item["id"] for item in log[:size]]
            changed = {one["id"] for one, other in zip(shown, log, strict=False) if one is not other}
            outputs = [item["id"] for item in log[:size] if item["type"] == "function_call_output"]
            assert before <= changed <= set(outputs[: len(outputs) - keep] if keep else outputs)
            assert all(item_tokens(one) <= item_tokens(other) for one, other in zip(shown, log, strict=False))
            before = changed

    asyncio.run(run())
    assert log == whole


@pytest.mark.parametrize(
    "options",
    [{"threshold": -1}, {"keep": -1}, {"clear_at_least": -1}, {"keep": 1.5}, {"exclude": [3]}],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(NoeticConfigError) as caught:
        tool_result_clearing(**options)

    assert caught.value.code == "INVALID_LAYER_OPTION"


async def test_an_agent_sends_lines_keeps_the_log_and_reads_a_result_again() -> None:
    @nn.tool
    def search(q: str) -> str:
        """Search."""
        return f"{q}: {BIG}"

    steps: list[Any] = [nn.CallTool("search", q=f"place {n}") for n in (1, 2, 3)]
    model = nn.ScriptedModel(
        [*steps, "Found.", nn.CallTool("tool-result-clearing/read_result", number=1), "Place 1 it was."]
    )
    layer = tool_result_clearing(1_000, clear_at_least=0, keep=1)
    harness = nn.AgentHarness(
        nn.AgentConfig(name="a", step=nn.react(model="m", tools=[search]), memory=[layer]), model=model
    )

    await harness.execute("Find it.", thread_id="t")
    await harness.execute("What was the first?", thread_id="t")

    last = model.requests[-1].items
    outputs = [item["output"] for item in last if item["type"] == "function_call_output"]
    assert [output[:10] for output in outputs] == ["[Result 1 ", "[Result 2 ", "place 3: r", "place 1: r"]
    assert any("<cleared_results>" in str(item) for item in model.requests[-1].items)
    logged = [item["output"][:9] for item in harness.log("t") if item["type"] == "function_call_output"]
    assert logged == ["place 1: ", "place 2: ", "place 3: ", "place 1: "]
