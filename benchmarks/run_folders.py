"""Many runs at once: the index, the first page of a table, filters and searches.

    python -m benchmarks.run_folders [runs]

The runs are generated, of four turns with a tool each; times are processor time of this process.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import noetic_nb as nn
from noetic_nb import widgets

WORDS = ["refund", "invoice", "parcel", "card", "seat", "flight", "order", "letter", "price", "delay"]


def messages(at: int) -> list[dict[str, Any]]:
    """Return the messages of one generated run."""
    said: list[dict[str, Any]] = []
    for turn in range(4):
        word = WORDS[(at + turn) % len(WORDS)]
        call = {
            "id": f"c{turn}",
            "type": "function",
            "function": {"name": f"get_{word}", "arguments": f'{{"id": {at}}}'},
        }
        said += [
            {"role": "user", "content": f"Where is {word} {at}? " + "I have been waiting for it. " * 8},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{turn}", "content": f"{word} {at} is on its way. " * 10},
            {"role": "assistant", "content": f"It is on its way: {word} {at}."},
        ]
    return said


def timed(name: str, ask: Callable[[], Any]) -> Any:
    """Print the processor time of a call, and return its result."""
    start = time.process_time()
    found = ask()
    print(f"{name:<44}{time.process_time() - start:9.3f} s", flush=True)
    return found


def main() -> None:
    """Print a line for each measure."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        for at in range(count):
            run = nn.Run.from_messages(messages(at), outcome=at % 3 > 0, meta={"task_id": str(at // 4)})
            run.save(f"{folder}/{at:06}.jsonl.gz")
        timed(f"index of {count:,} runs", lambda: nn.open_runs(folder, progress=False))
        runs = timed("open again, nothing changed", lambda: nn.open_runs(folder, progress=False))
        timed("first page: facts of 50 runs", lambda: runs[:50].rows())
        view = timed("Runs: first page in the kernel", lambda: widgets.Runs(runs))
        page = {"what": "page", "text": "", "where": "", "sort": "", "descending": False, "start": 0}
        timed("Runs: search, its first page", lambda: view._answer(page | {"text": "refund"}))
        timed("Runs: where, its first page", lambda: view._answer(page | {"where": "outcome == false"}))
        timed("Runs: sort, its first page", lambda: view._answer(page | {"sort": "tokens"}))
        timed("Runs: the next page", lambda: view._answer(page | {"sort": "tokens", "start": 50}))
        sent, form = len(json.dumps(view.snapshot)), len(view.to_page().encode())
        print(f"Runs: data of a page {sent:,} B, static page {form:,} B, script {len(view._esm):,} B")
        timed("search: one word", lambda: len(runs.search("refund")))
        timed("search: a number", lambda: len(runs.search("4711")))
        timed("where: outcome and tool", lambda: len(runs.where("outcome == false && 'get_refund' in tools")))
        timed("sort by tokens", lambda: runs.sort("tokens"))
        timed("to_frame", runs.to_frame)
        timed("read one run", lambda: runs[count // 2])
        size = sum(each.stat().st_size for each in Path(folder).glob(".noetic-runs*"))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"index {size / 2**20:.1f} MB, process at most {peak:.0f} MB")


if __name__ == "__main__":
    main()
