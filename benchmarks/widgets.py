"""What a live view costs the kernel: processor time and bytes per update, measured in a real Jupyter kernel.

    python -m benchmarks.widgets

Each view follows a run of 400 turns with three layers while it is shown; the kernel really sends its messages. The goals
are 1.5 ms of kernel time and 2 KB for each update; an anywidget that sends deltas was measured at 0.9 ms and 1.3 KB
(three series of 600 points), one that sends the whole list at 2.4 ms and 38 KB.
"""

from __future__ import annotations

import sys
from typing import Final

GOAL_MS: Final = 1.5
GOAL_BYTES: Final = 2_048
TURNS: Final = 400

PROBE: Final = """
import json, statistics, time
from noetic_nb.events import (
    LayerTokens, ModelCalled, QualityGiven, RegulatorDecided, RegulatorSaw, SteeringDecided, TurnCompleted, TurnStarted,
    ViewAssembled, Where)
from noetic_nb.runs import Run
from noetic_nb.widgets import Ledger, RegulatorTrends, TokenAllocation

def turn(n):
    w, t = Where("t1", f"e{n}", n), 1_000.0 * n
    layers = tuple(LayerTokens(name, 500.0, 40 + n % 300, 160.0, 1) for name in ("policy", "notes", "facts"))
    yield TurnStarted(w, t, f"turn{n}", 2 * n - 2, 2 * n - 1, "and now?")
    yield ViewAssembled(w, t, 1, (0, 2 * n), (), layers, (), 8000.0, 1000.0, 40, 300, 60, 20 * n, 2700.0, 2 * n)
    yield ModelCalled(w, t, 1, "m", "agent", 5.0, "ok", (), 500, 40)
    yield SteeringDecided(w, t, "steering", "after_model_call", None, None, "allow", None, (), 0.1)
    yield RegulatorSaw(w, t, "regulation", {"kind": "cost", "tokens_in": 500, "tokens_out": 40, "wallclock_ms": 5})
    yield RegulatorDecided(w, t, "regulation", "turn_complete", {"kind": "continue"}, None, 0.7, 40 * n, 20_000)
    yield QualityGiven(w, t, 0.5 + 0.4 * ((n * 7) % 11) / 11, "grader")
    yield TurnCompleted(w, t, f"turn{n}", "success", 5.0, "fine", 500, 40, 0.0, 1, 0)

def measure(make):
    run = Run()
    view = make(run)
    from IPython.display import display
    display(view)
    sizes, sent = [], view.send
    def weigh(content, buffers=None):
        sizes.append(len(json.dumps(content)))
        sent(content, buffers)
    view.send = weigh
    times = []
    for n in range(1, TURNS + 1):
        for event in turn(n):
            before, start = len(sizes), time.process_time()
            run.append(event)
            if len(sizes) > before:
                times.append(time.process_time() - start)
    view.close()
    return {"updates": len(times), "median_ms": 1e3 * statistics.median(times),
            "p95_ms": 1e3 * sorted(times)[int(0.95 * len(times))], "largest_bytes": max(sizes)}

print("RESULT " + json.dumps({make.__name__: measure(make) for make in (TokenAllocation, RegulatorTrends, Ledger)}))
"""


def main() -> int:
    """Run the probe in a kernel and print a line per view."""
    import json

    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(f"TURNS = {TURNS}\n{PROBE}")])
    NotebookClient(notebook, timeout=300, kernel_name="python3", store_widget_state=False).execute()
    texts = [output.get("text", "") for output in notebook.cells[0].outputs]
    line = next(text for block in texts for text in block.splitlines() if text.startswith("RESULT "))
    for name, seen in json.loads(line.removeprefix("RESULT ")).items():
        print(
            f"{name}: {seen['median_ms']:.3f} ms an update, p95 {seen['p95_ms']:.3f} ms (goal <= {GOAL_MS} ms), "
            f"largest {seen['largest_bytes']} bytes (goal <= {GOAL_BYTES}), {seen['updates']} updates"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
