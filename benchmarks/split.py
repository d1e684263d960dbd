"""Where the time of a turn goes that people run: the split that ``lab.profile`` makes of recorded turns.

Run ``python -m benchmarks.split``. The turn is that of ``benchmarks.turns`` with five layers and ten rules, saved in memory
before each answer; model and tool answer at once. Parts are means over the quickest quarter of the turns: they add up to a turn,
and what else the machine did is in few of these. What the recorder takes is in ``own``.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from benchmarks.comparing import Lines, parser
from benchmarks.turns import agent, talk
from noetic_nb.lab import profile
from noetic_nb.runs import record
from noetic_nb.storage import InMemoryStorage

WHOLE: Final = "turn"
LINES: Final[dict[str, float | None]] = dict.fromkeys(
    (
        "model scripted",
        "tool lookup",
        *(f"hook notes{number}" for number in range(5)),
        "hook steering",
        *(f"rule rule{number}" for number in range(10)),
        "planning",
        "storage",
        "own",
        WHOLE,
    )
)


def main() -> int:
    """Measure and print."""
    options = parser(__doc__, rounds=30).parse_args()
    harness, model = agent(layers=5, rules=10, storage=InMemoryStorage(), checkpoints=True)
    run = talk(harness, model)

    async def measured() -> object:
        for _ in range(3):
            await run()
        watched = record(harness)
        for _ in range(options.rounds):
            await run()
        return watched

    table = profile(asyncio.run(measured())).set_index(["thread_id", "turn"])
    took = table["ms"].groupby(level=[0, 1]).sum().sort_values()
    quick = table.loc[took.index[: len(took) // 4]]
    parts = quick.groupby(["part", "name"], sort=False)[["ms", "count"]].sum() / (len(took) // 4)
    whole, lines = parts["ms"].sum(), Lines(LINES)
    for (part, name), row in parts.iterrows():
        about = f"{row['ms'] / whole:.1%}" + (f", {row['count']:g} times" if row["count"] > 1 else "")
        lines.value(f"{part} {name}".rstrip(), row["ms"] * 1_000, about=about, unit="us")
    lines.value(WHOLE, whole * 1_000, about=f"of {len(took)} turns", unit="us")
    return lines.end(options)


if __name__ == "__main__":
    sys.exit(main())
