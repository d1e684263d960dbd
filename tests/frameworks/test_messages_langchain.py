"""Messages of LangChain and states of LangGraph: objects and their dumps read, and what is written read by LangChain."""

from __future__ import annotations

import json
from typing import Any

import pytest

import noetic_nb as nn
from noetic_nb.events import ModelCalled, ToolCalled
from noetic_nb.items._messages import decode_messages
from noetic_nb.runs import Run

pytest.importorskip("langchain_core", reason="the package langchain-core is not installed")

from langchain_core import messages
from langchain_core.load import dumpd, dumps

# Loops and streams that the package leaves open are its own.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")

CALLS = [
    {"name": "lookup", "args": {"id": "A17"}, "id": "c1", "type": "tool_call"},
    {"name": "lookup", "args": {"id": "B7"}, "id": "c2", "type": "tool_call"},
]
PICTURE = {"type": "image", "base64": "QUJD", "mime_type": "image/png"}
TALK = [
    messages.SystemMessage("Be brief."),
    messages.HumanMessage([{"type": "text", "text": "See"}, PICTURE]),
    messages.AIMessage(
        [
            {"type": "reasoning", "reasoning": "Hm.", "extras": {"signature": "s1"}},
            {"type": "text", "text": "A moment."},
        ],
        tool_calls=CALLS,
        usage_metadata={
            "input_tokens": 40,
            "output_tokens": 4,
            "total_tokens": 44,
            "input_token_details": {"cache_read": 32},
        },
        response_metadata={"model_name": "m-1", "finish_reason": "tool_calls"},
    ),
    messages.ToolMessage("packed", tool_call_id="c1"),
    messages.ToolMessage("no such order", tool_call_id="c2", status="error"),
    messages.AIMessage("Packed."),
]


@pytest.mark.parametrize("form", ["objects", "dicts", "dumpd", "dumps", "model_dump", "state", "state_dump"])
def test_messages_are_read_whole_whichever_way_they_were_kept(form: str) -> None:
    source: Any = {
        "objects": lambda: TALK,
        "dicts": lambda: messages.messages_to_dict(TALK),
        "dumpd": lambda: [dumpd(message) for message in TALK],
        "dumps": lambda: dumps(TALK),
        "model_dump": lambda: [message.model_dump() for message in TALK],
        "state": lambda: {"messages": TALK},
        "state_dump": lambda: json.dumps({"messages": dumpd(TALK)}),
    }[form]()

    run = nn.import_run(source)

    assert run.meta["source"] == "langchain"
    assert [(call.name, call.args, call.output, call.status) for call in run.select(ToolCalled)] == [
        ("lookup", {"id": "A17"}, "packed", "ok"),
        ("lookup", {"id": "B7"}, "no such order", "error"),
    ]
    first = run.select(ModelCalled)[0]
    assert (first.model, first.input_tokens, first.cached_tokens, first.finish_reason) == ("m-1", 40, 32, "tool_calls")
    assert (run.meta["policy"], run.meta["unmapped"]) == ("Be brief.", [])


def test_what_is_written_is_read_by_langchain_and_by_us() -> None:
    run = Run.from_messages(TALK)

    wire = run.to_messages("langchain")
    theirs = messages.messages_from_dict(wire)

    assert [type(message) for message in theirs] == [type(message) for message in TALK]
    assert [message.tool_calls for message in theirs if message.type == "ai"] == [CALLS, []]
    assert [message.status for message in theirs if message.type == "tool"] == ["success", "error"]
    assert [message.text for message in theirs] == [message.text for message in TALK]
    again = Run.from_messages(theirs)
    assert again.to_messages("langchain") == wire
    assert messages.convert_to_openai_messages(theirs[1:2])[0]["role"] == "user"


def test_what_a_provider_ran_stands_where_it_stood() -> None:
    ran = {"type": "server_tool_call", "id": "s1", "name": "web_search", "args": {"query": "tea"}}
    found = {"type": "server_tool_result", "tool_call_id": "s1", "status": "success", "output": "leaves"}
    odd = {"type": "video", "url": "https://x/v.mp4"}
    talk = [messages.HumanMessage([odd]), messages.AIMessage([ran, found, {"type": "text", "text": "Tea."}])]

    run = Run.from_messages(talk)

    assert [(call.name, call.output) for call in run.select(ToolCalled)] == [("web_search", "leaves")]
    assert run.turns[0].text == "Tea."
    assert [entry["place"] for entry in run.meta["unmapped"]] == ["messages[0].content[0]"]
    assert run.to_messages("langchain")[1]["data"]["content"] == talk[1].content


def test_a_streamed_answer_is_put_together() -> None:
    chunks = [messages.AIMessageChunk(text, id="r1") for text in ("Pa", "cked", ".")]

    found, unmapped, _ = decode_messages([messages.HumanMessage("x"), *chunks])

    assert unmapped == []
    assert [message.items[0]["content"][0]["text"] for message in found] == ["x", "Packed."]


def test_a_graph_that_ran_is_a_run() -> None:
    pytest.importorskip("langgraph", reason="the package langgraph is not installed")
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.tools import tool
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    @tool
    def lookup(id: str) -> str:
        """Look an order up."""
        if id == "B7":
            raise ValueError("no such order")
        return "packed"

    model = GenericFakeChatModel(messages=iter([TALK[2], TALK[5]]))
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([lookup], handle_tool_errors=True))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "model")
    app: Any = graph.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}

    state = app.invoke({"messages": [("user", "Where are they?")]}, config)

    for source in (state, app.get_state(config)):
        run = nn.import_run(source)
        assert [(call.name, call.status) for call in run.select(ToolCalled)] == [("lookup", "ok"), ("lookup", "error")]
        assert [(turn.query, turn.text) for turn in run.turns] == [("Where are they?", "Packed.")]
        assert run.meta["unmapped"] == []
