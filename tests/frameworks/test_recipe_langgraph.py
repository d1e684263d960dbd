"""The recipe docs/recipes/langgraph.md as it stands there: a call that is denied is read by the model, and the agent goes on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "recipes" / "langgraph.md"
ANSWER = "A17 is packed; I may not refund it."


def played() -> dict[str, Any]:
    """Run the blocks of the recipe one after the other, and return what came of each."""
    import noetic_nb as nn
    from tests.frameworks.fakes import langchain_model

    calls = (("lookup", {"order_id": "A17"}), ("refund", {"order_id": "A17"}))
    names: dict[str, Any] = {"model": langchain_model(calls, ANSWER)}
    said = []
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
        messages = names["state"]["messages"]
        said.append([m.content for m in messages if m.type == "tool"] + [nn.import_run(messages).turns[0].text])
    ledger = names["tools"][0].run.to_frame("ledger").query("tool_name == tool_name")
    return {
        "said": said,
        "ledger": ledger[["tool_name", "action"]].values.tolist(),
        "conversations": ledger.thread_id.nunique(),
        "watched": names["watching"].run.to_frame("tools").tool_name.tolist()[:2],
    }


def test_the_recipe_runs_as_it_stands_with_create_agent_and_in_a_graph() -> None:
    # A process of its own: the recipe instruments it for good.
    code = "import json; from tests.frameworks.test_recipe_langgraph import played; print(json.dumps(played()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])

    assert len(found["said"]) == 2
    for looked, refused, text in found["said"]:
        assert looked == "A17 is packed."
        assert "refund may not be called." in refused
        assert text == ANSWER
    assert found["ledger"] == [["lookup", "allow"], ["refund", "deny"]] * 2
    assert found["conversations"] == 2
    assert found["watched"] == ["lookup", "refund"]
