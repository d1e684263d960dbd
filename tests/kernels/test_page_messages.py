"""Messages of a page: handled in order, also while a cell runs, from any subshell or none, and each is reported as ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

PATIENCE_S = 60
CELLS = 60

SETUP = """
import asyncio, threading
from noetic_nb.runs import Run
from noetic_nb.widgets import Approval, Ledger

view = Ledger(Run())
chosen = threading.Event()
turns = []
_ = view.selection.observe(lambda fields: (chosen.set(), turns.append(fields["turn"])))
print(view.comm.comm_id)
"""


class Page:
    """A client that sends a view's messages as a front end does."""

    def __init__(self) -> None:
        self.manager, self.client = start_new_kernel()
        self.text, self.ended = "", set[str]()
        self.finish({self.client.execute(SETUP)})
        self.comm_id = self.text.split()[-1]

    def finish(self, requests: set[str]) -> None:
        """Wait until the kernel has reported the end of all requests."""
        while requests - self.ended:
            message = self.client.get_iopub_msg(timeout=PATIENCE_S)
            content = message["content"]
            self.text += content.get("text", "") + "\n".join(content.get("traceback", ()))
            if content.get("execution_state") == "idle":
                self.ended.add(message["parent_header"]["msg_id"])

    def subshells(self, action: str, **content: str) -> Any:
        """Create, list or delete subshells; returns the id or the ids in the reply."""
        self.client.control_channel.send(self.client.session.msg(f"{action}_subshell_request", content))
        return self.client.get_control_msg(timeout=PATIENCE_S)["content"].get("subshell_id")

    def send(self, content: dict[str, Any], subshell_id: str | None = None) -> str:
        data = {"method": "custom", "content": content}
        message = self.client.session.msg("comm_msg", {"comm_id": self.comm_id, "data": data})
        message["header"]["subshell_id"] = subshell_id
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def turns(self) -> Any:
        """Return the turns that were selected, in order."""
        self.finish(
            {self.client.execute("from noetic_nb.widgets.base._page_thread import PAGES; PAGES.wait(); print(turns)")}
        )
        return json.loads(self.text.split("\n")[1])


@pytest.fixture
def page() -> Iterator[Page]:
    made = Page()
    try:
        yield made
    finally:
        made.client.stop_channels()
        made.manager.shutdown_kernel(now=True)


def test_a_click_is_handled_while_a_cell_blocks_the_kernel(page: Page) -> None:
    cell = page.client.execute(f"print('chosen' if chosen.wait({PATIENCE_S // 2}) else 'too late')")
    page.send({"type": "select", "id": "1", "turn": 1})

    page.finish({cell})
    assert page.text.split()[-1] == "chosen"


def test_each_cell_that_awaits_and_each_message_ends(page: Page) -> None:
    requests = set()
    for number in range(CELLS):
        requests.add(page.client.execute(f"for _ in range({number % 7 + 1}): await asyncio.sleep(0)"))
        requests.update([page.send({"type": "select", "id": str(number), "turn": turn}) for turn in range(3)])

    page.finish(requests)
    assert len(requests) == 4 * CELLS


def test_messages_of_a_page_that_learns_its_subshell_stay_in_order(page: Page) -> None:
    ways = [None, page.subshells("create"), page.subshells("create")]
    sent = range(40 * CELLS)
    page.finish({page.send({"type": "select", "id": str(turn), "turn": turn}, ways[turn % 3]) for turn in sent})

    assert page.turns() == list(sent)


def test_a_subshell_that_is_gone_loses_no_message(page: Page) -> None:
    page.finish({page.send({"type": "select", "id": "1", "turn": 1}, "never there")})
    [shared] = page.subshells("list")
    page.subshells("delete", subshell_id=shared)

    page.finish({page.send({"type": "select", "id": "2", "turn": 2}, shared)})
    assert page.turns() == [1, 2]
