"""Plan memory: nothing is carried out while a plan is made, and no plan is carried out before it stands."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import noetic_nb as nn
from noetic_nb.layers import _plan as plan
from noetic_nb.layers import _plan as plan_documents
from noetic_nb.layers import plan_memory
from noetic_nb.layers._plan import PlanProblem, cycle_in, read_document, references, slug_problem
from noetic_nb.steps import Registry, load_workflow
from tests.layers.layer_driver import Conversation


def llm(id: str = "a") -> dict[str, Any]:
    return {"kind": "llm", "id": id, "instructions": "Go."}


def sequence(*steps: Any, id: str = "s") -> dict[str, Any]:
    return {"kind": "sequence", "id": id, "steps": list(steps)}


def subflow(ref: str) -> dict[str, Any]:
    return {"kind": "subflow", "id": f"to-{ref}", "ref": ref}


def document(root: Any) -> dict[str, Any]:
    return {"version": 1, "root": root}


async def planning(**options: Any) -> Conversation:
    talk = Conversation(plan_memory(**options))
    await talk.begin()
    await talk.call("plan", "enter_plan_mode", goal="Ship it")
    return talk


async def phase(talk: Conversation) -> str:
    return str(talk.data("plan", "status")["phase"])


async def may_call(talk: Conversation, name: str) -> bool:
    decision = await talk.stack.before_tool_call(talk.context(), tool_name=name, tool_args={})
    return str(decision.action) == "allow"


async def test_defect_3_planning_refuses_tools_that_change_something_and_never_its_own_functions() -> None:
    talk = await planning(additional_allowed_tools=["lookup"])

    allowed = {name: await may_call(talk, name) for name in ("plan/update_prd", "read_file", "lookup", "pay", "plan_x")}

    assert allowed == {"plan/update_prd": True, "read_file": True, "lookup": True, "pay": False, "plan_x": False}


async def test_outside_of_planning_every_tool_may_be_called() -> None:
    talk = Conversation(plan_memory())
    await talk.begin()

    assert await may_call(talk, "pay")


async def test_a_plan_goes_from_planning_to_executing_to_completed() -> None:
    talk = await planning()
    assert "<plan_mode>" in await talk.shown()
    await talk.call("plan", "update_prd", content="# Ship it\nSoon.")
    await talk.call("plan", "set_workflow", name="build", document=document(sequence(llm("x"), llm("y"))))
    await talk.call("plan", "set_plan_tree", document=json.dumps(document(sequence(subflow("build")))))

    assert await talk.call("plan", "exit_plan_mode", action="execute") == "The plan is being carried out."
    shown = await talk.shown()
    assert shown.startswith("<active_plan>")
    assert "- build: 3 nodes (llm x2, sequence x1)" in shown
    assert await may_call(talk, "pay")
    await talk.end("done")

    assert await talk.begin() == "<plan_outcome>\nPlan v1 completed.\n</plan_outcome>"
    assert talk.state("plan")["executionLog"][0]["outcome"] == "completed"


async def test_a_plan_whose_execution_fails_has_failed() -> None:
    talk = await planning()
    await talk.call("plan", "set_plan_tree", document=llm())
    await talk.call("plan", "exit_plan_mode", action="execute")
    await talk.end("oops", outcome="failure")
    await talk.begin()

    assert await phase(talk) == "failed"


async def test_an_idle_plan_shows_nothing_and_refuses_everything_in_words() -> None:
    talk = Conversation(plan_memory())

    assert await talk.begin() == ""
    for name, args in (
        ("update_prd", {"content": "x"}),
        ("set_plan_tree", {"document": llm()}),
        ("set_workflow", {"name": "a", "document": llm()}),
        ("remove_workflow", {"name": "a"}),
        ("exit_plan_mode", {"action": "execute"}),
    ):
        assert (await talk.call("plan", name, **args)).startswith("Not done: no plan is being made"), name
    assert await phase(talk) == "idle"


async def test_cancelling_drops_everything() -> None:
    talk = await planning()
    await talk.call("plan", "exit_plan_mode", action="cancel")

    assert talk.data("plan", "status") == {
        "phase": "idle",
        "hasPrd": False,
        "hasPlanTree": False,
        "workflowNames": [],
        "version": 0,
    }


async def test_a_plan_is_not_carried_out_before_it_stands() -> None:
    talk = Conversation(plan_memory())
    await talk.begin()
    await talk.call("plan", "enter_plan_mode")
    ask = ("plan", "exit_plan_mode")

    assert "requirements are missing" in await talk.call(*ask, action="execute")
    await talk.call("plan", "update_prd", content="x")
    assert "plan is missing" in await talk.call(*ask, action="execute")
    assert "Still to be written: a." in await talk.call("plan", "set_plan_tree", document=subflow("a"))
    assert "do not exist: a" in await talk.call(*ask, action="execute")
    await talk.call("plan", "set_workflow", name="a", document=subflow("b"))
    await talk.call("plan", "set_workflow", name="b", document=subflow("a"))
    assert "circle: a -> b -> a" in await talk.call(*ask, action="execute")
    assert await phase(talk) == "planning"


@pytest.mark.parametrize(("answer", "expected"), [(True, "executing"), (False, "planning"), ("too risky", "planning")])
async def test_a_person_may_have_to_approve(answer: Any, expected: str) -> None:
    async def approve(state: Any) -> Any:
        state["prd"] = "meddled"
        return answer

    talk = await planning(approve=approve)
    await talk.call("plan", "set_plan_tree", document=llm())

    said = await talk.call("plan", "exit_plan_mode", action="execute")

    assert await phase(talk) == expected
    assert answer is True or (answer or "not approved") in said
    assert talk.state("plan")["prd"] == "# Ship it\n"


async def test_limits_are_refused_in_words() -> None:
    talk = await planning()

    assert "at most 50000" in await talk.call("plan", "update_prd", content="x" * 50_001)
    assert "at most 20000" in await talk.call("plan", "set_workflow", name="a", document=llm() | {"note": "x" * 20_000})
    for n in range(20):
        await talk.call("plan", "set_workflow", name=f"w{n}", document=llm())
    assert "20 workflows already" in await talk.call("plan", "set_workflow", name="more", document=llm())
    assert await talk.call("plan", "set_workflow", name="w0", document=llm("new")) == "w0 is kept."
    assert json.loads(await talk.call("plan", "get_workflow", name="w0"))["root"]["id"] == "new"
    assert "Known: w0" in await talk.call("plan", "get_workflow", name="none")
    assert await talk.call("plan", "remove_workflow", name="w0") == "w0 is removed."


DEEP = llm()
for level in range(6):
    DEEP = {"kind": "spawn", "id": f"d{level}", "child": DEEP}

BAD = [
    (7, "an object"),
    ("{", "not JSON"),
    ({"version": 2, "root": llm()}, "version"),
    ({}, "version"),
    (document({"kind": "magic", "id": "a"}), "unknown kind"),
    (document({"kind": ["llm"], "id": "a"}), "unknown kind"),
    (document({"kind": "llm", "id": " ", "instructions": ""}), "non-empty id"),
    (document({"kind": "llm", "id": "a"}), "`instructions` must be text"),
    (document(sequence("text")), "not a node"),
    (document({"kind": "sequence", "id": "s", "steps": llm()}), "`steps` must be a list"),
    (document({"kind": "branch", "id": "b", "routes": [{"match": 1, "target": llm()}]}), "match"),
    (document({"kind": "branch", "id": "b", "routes": 1}), "`routes` must be a list"),
    (document({"kind": "subflow", "id": "x"}), "`document` or `ref`, and not both"),
    (document({"kind": "subflow", "id": "x", "ref": "A b"}), "not a name"),
    (document(DEEP), "nested more than 5"),
    (document(llm() | {"instruction": "Go."}), "no `instruction`"),
    (document({"kind": "llm", "id": "a", "instructions": ""}), "`instructions` must be text"),
    (document({"kind": "llm", "id": "a", "instructions": "Go.", "params": {"temperature": -1}}), "temperature"),
    (document({"kind": "loop", "id": "l", "body": llm(), "until": {"kind": "soon"}}), "stop predicate is unknown"),
    (document({"kind": "fork", "id": "f", "mode": "all"}), "`paths` or `each`"),
    (document({"kind": "run", "id": "r", "execute": "print(1)"}), "never run from a document"),
    (document(llm()) | {"roots": 1}, "no `roots`"),
]


@pytest.mark.parametrize(("given_document", "why"), BAD, ids=[why for _, why in BAD])
def test_a_document_that_is_none_is_refused_with_the_place(given_document: Any, why: str) -> None:
    with pytest.raises(PlanProblem, match=why):
        read_document(given_document)


EVERY_KIND = {
    "llm": llm() | {"model": "m", "tools": [{"type": "search"}, "pay"], "params": {"temperature": 0}, "output": "fenced_json",
                    "incomplete": "continue"},
    "tool": {"kind": "tool", "id": "t", "toolName": "pay", "args": {"sum": 3}},
    "run": {"kind": "run", "id": "r", "execute": {"$ref": "fn:count", "args": {"n": 1}}, "retry": {"maxAttempts": 2}},
    "branch": {"kind": "branch", "id": "b", "routes": [{"match": "x", "target": llm()}], "default": None},
    "fork": {"kind": "fork", "id": "f", "paths": [llm()], "concurrency": 2},
    "each": {"kind": "fork", "id": "f", "mode": "settle", "each": llm(), "over": "rows", "merge": "concat"},
    "spawn": {"kind": "spawn", "id": "sp", "child": llm(), "layers": ["notes"], "timeout": 5},
    "loop": {"kind": "loop", "id": "l", "body": llm(), "until": {"kind": "any", "predicates": [{"kind": "maxSteps", "n": 2}]}},
    "sequence": sequence(llm(), llm("b")),
    "subflow": {"kind": "subflow", "id": "sf", "document": document(llm()), "ref": None, "input": "go"},
    "ref": subflow("later"),
}  # fmt: skip


def registry() -> Registry:
    def count(value: Any, ctx: Any, n: int) -> int:
        return n

    def pay(sum: int) -> str:
        return ""

    def search() -> str:
        return ""

    notes = nn.working_memory(id="notes")
    return Registry([count], tools=[pay, search], layers=[notes], workflows={"later": document(llm())})


@pytest.mark.parametrize("kind", EVERY_KIND)
async def test_a_plan_takes_what_the_loader_takes(kind: str) -> None:
    load_workflow(document(EVERY_KIND[kind]), registry())
    talk = await planning()

    assert "is kept" in await talk.call("plan", "set_plan_tree", document=document(EVERY_KIND[kind]))
    assert "is kept" in await talk.call("plan", "set_workflow", name="a", document=json.dumps(EVERY_KIND[kind]))


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("harm", [{"extra": 1}, {"id": ""}, {"kind": "none"}])
def test_a_plan_refuses_what_the_loader_refuses(kind: str, harm: dict[str, Any]) -> None:
    bad = document(EVERY_KIND[kind] | harm)

    with pytest.raises(nn.NoeticConfigError):
        load_workflow(bad, registry())
    with pytest.raises(PlanProblem):
        read_document(bad)


async def test_workflows_that_use_each_other_are_looked_at_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = await planning()
    for n in range(20):
        steps = sequence(llm(), *(subflow(f"w{m}") for m in range(n + 1, 20)))
        assert "is kept" in await talk.call("plan", "set_workflow", name=f"w{n}", document=steps)
    await talk.call("plan", "set_plan_tree", document=subflow("w0"))
    looks = 0

    def counted(found: Any) -> Any:
        nonlocal looks
        looks += 1
        assert looks <= 100, "each document is looked at a few times, not once for each way to it"
        return references(found)

    monkeypatch.setattr(plan_documents, "references", counted)
    monkeypatch.setattr(plan, "references", counted)

    assert "being carried out" in await talk.call("plan", "exit_plan_mode", action="execute")


NODES = st.recursive(
    st.just(llm()) | st.sampled_from("abc").map(subflow),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda steps: sequence(*steps))
        | inner.map(lambda child: {"kind": "spawn", "id": "sp", "child": child})
        | inner.map(
            lambda node: {"kind": "branch", "id": "b", "routes": [{"match": "x", "target": node}], "default": node}
        )
    ),
    max_leaves=6,
)


def depth(node: dict[str, Any]) -> int:
    """Return the longest path below a node, in edges."""
    inner = [*node.get("steps", ()), *(route["target"] for route in node.get("routes", ()))]
    inner += [node[field] for field in ("child", "default") if field in node]
    return max((1 + depth(child) for child in inner), default=0)


@given(NODES)
def test_a_document_that_is_kept_reads_back_the_same(root: Any) -> None:
    try:
        found = read_document(document(root))
    except PlanProblem:
        assume(False)
    assert found == document(root)
    assert depth(found["root"]) <= 5
    assert read_document(json.dumps(found)) == found
    assert set(references(found)) <= set("abc")
    assert (cycle_in(found, dict.fromkeys("abc", found)) is not None) == bool(references(found))


@pytest.mark.parametrize("name", ["a", "ship-it", "x" * 64, "a1-2"])
def test_a_slug_is_a_name(name: str) -> None:
    assert slug_problem(name) is None


@pytest.mark.parametrize("name", ["", "A", "a b", "-a", "a--b", "x" * 65, "a\n", "é"])
def test_anything_else_is_not(name: str) -> None:
    assert slug_problem(name) is not None
