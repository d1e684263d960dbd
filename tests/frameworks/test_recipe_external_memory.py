"""The recipe docs/recipes/external_memory.md as it stands there: mem0 and LangMem with a scripted model, and no network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "recipes" / "external_memory.md"


def parts() -> tuple[Any, Any]:
    """Return a model that keeps what the user wrote last, as a text or by a tool, and embeddings of hashed words."""
    from langchain_core.embeddings import Embeddings
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Keeping(BaseChatModel):
        def _generate(self, messages: list[Any], stop: Any = None, run_manager: Any = None, **more: Any) -> ChatResult:
            said = re.findall(r"(?:\nuser: |Human Message =+\n\n)(.+)", str(messages[-1].content))[-1]
            usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
            call = {"name": "Memory", "args": {"content": said}, "id": "c1"}
            answer = AIMessage("", tool_calls=[call]) if more else AIMessage(json.dumps({"memory": [{"text": said}]}))
            answer.usage_metadata = usage
            return ChatResult(generations=[ChatGeneration(message=answer)])

        def bind_tools(self, tools: Any, **more: Any) -> Any:
            return self.bind(tools=len(tools))

        @property
        def _llm_type(self) -> str:
            return "scripted"

    class Words(Embeddings):
        def embed_query(self, text: str) -> list[float]:
            vector = [0.0] * 256
            for word in re.findall(r"\w+", text.lower()):
                vector[zlib.crc32(word.encode()) % 256] += 1.0
            return vector

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [self.embed_query(text) for text in texts]

    return Keeping(), Words()


def played() -> dict[str, Any]:
    """Run the blocks of the recipe one after the other, and return what came of them."""
    import noetic_nb as nn
    from noetic_nb.items import item_text
    from noetic_nb.runs._requests.recorded_requests import recorded_request

    found: dict[str, Any] = {}
    with TemporaryDirectory() as folder:
        model, embeddings = parts()
        names: dict[str, Any] = {"model": model, "embeddings": embeddings, "folder": folder}
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL):
            exec(compile(block, PAGE.name, "exec"), names)
        for name in ("mem0_layer", "langmem_layer"):
            config = nn.AgentConfig(name="d", step=nn.react(model="scripted"), memory=[names[name]])
            harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Noted."] * 3))
            run = nn.record(harness)
            before = len(names["counter"].calls)
            for thread, user, text in (
                ("a", "ann", "My cat is grey."),
                ("b", "bob", "My cat?"),
                ("c", "ann", "My cat?"),
            ):
                nn.run_sync(harness.execute(text, thread_id=thread, resource_id=user))
            sent = [recorded_request(run, at).items for at in range(3)]
            texts = ["\n".join([item_text(one.item) for one in items if one.item is not None]) for items in sent]
            found[name] = {
                "told": ["grey" in text for text in texts],
                "calls": len(names["counter"].calls) - before,
            }
        rows = names["table"].query("layers == 'mem0'").set_index("rung")
        found["bench"] = {column: float(rows.loc["owned", column]) for column in ("recall", "own_calls", "own_tokens")}
        names["memory"].close()
    return found


def test_the_recipe_runs_as_it_stands_with_mem0_and_with_langmem() -> None:
    # A process of its own: mem0 reads its settings from the environment, once.
    code = "import json; from tests.frameworks.test_recipe_external_memory import played; print(json.dumps(played()))"
    with TemporaryDirectory() as home:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "MEM0_TELEMETRY": "False", "MEM0_DIR": home}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])

    for name in ("mem0_layer", "langmem_layer"):
        # What ann said is told to ann in another conversation, and never to bob.
        assert found[name] == {"told": [True, False, True], "calls": 3}
    assert found["bench"]["recall"] > 0.5
    assert found["bench"]["own_tokens"] == 110 * found["bench"]["own_calls"] > 0
