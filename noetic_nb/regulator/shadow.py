"""The decisions of a regulator on recorded events: the command line of the original, reading standard input.

    python -m noetic_nb.regulator.shadow --cost-cap=10000 --scope-threshold=0.7 < events.jsonl
    python -m noetic_nb.regulator.shadow --scope-threshold=0 --summary-only < events.jsonl

One JSON object per line comes in, ``{"turn_id", "event_idx", "event_type", "payload"}``; one per event goes out, and a summary
last. As in the original an option that cannot be used is reported and ignored. Ours are a file in place of standard input,
``--preset`` and ``--group-by``.

References
----------
.. [1] docs/behaviour/regulator.md, "Event logs".
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final, TextIO

from noetic_nb.regulator._adapters.event_log import read_log, replay_log
from noetic_nb.regulator._regulator import Regulator
from noetic_nb.regulator.events import U32_MAX

__all__ = ["main"]

_PRESETS: Final = {"release": Regulator.for_user, "newer": Regulator.newer, "recommended": Regulator.recommended}


def _options(arguments: Sequence[str], problems: TextIO) -> Any:
    parser = argparse.ArgumentParser(
        prog="python -m noetic_nb.regulator.shadow",
        description="Decide recorded events again: JSON Lines in, decisions and a summary out.",
        # An abbreviation would be one more spelling to keep.
        allow_abbrev=False,
    )
    parser.add_argument("log", nargs="?", type=Path, help="a file of events; standard input by default")
    parser.add_argument("--cost-cap", metavar="N", help="cap on output tokens of a turn, default 10000")
    parser.add_argument(
        "--scope-threshold", metavar="F", help="drift warns from here on, default 0.5; 0 shows all scores"
    )
    parser.add_argument("--summary-only", action="store_true", help="print the summary only")
    parser.add_argument("--preset", choices=sorted(_PRESETS), default="release")
    parser.add_argument("--group-by", choices=["turn", "user"], default="turn")
    options, unknown = parser.parse_known_args(arguments)
    for argument in unknown:
        print(f"shadow: unknown argument {argument!r} is ignored", file=problems)
    options.cost_cap = _number("--cost-cap", options.cost_cap, int, U32_MAX, problems)
    options.scope_threshold = _number("--scope-threshold", options.scope_threshold, float, 1, problems)
    return options


def _number(name: str, text: str | None, read: type[int] | type[float], most: int, problems: TextIO) -> Any:
    if text is None:
        return None
    try:
        number = read(text)
    except ValueError:
        number = -1
    if 0 <= number <= most:  # NaN fails here too
        return number
    print(f"shadow: {name}={text} is ignored, as it is no number from 0 to {most}", file=problems)
    return None


def main(arguments: Sequence[str], source: TextIO, out: TextIO, problems: TextIO) -> int:
    """Run the command line; 0, or 1 when the events cannot be read or the decisions not be written."""
    options = _options(arguments, problems)

    def make(user_id: str) -> Regulator:
        regulator = _PRESETS[options.preset](user_id)
        if options.cost_cap is not None:
            regulator.with_cost_cap(options.cost_cap)
        if options.scope_threshold is not None:
            regulator.with_scope_drift_threshold(options.scope_threshold)
        return regulator

    def skipped(number: int, why: str) -> None:
        print(f"{options.log or 'standard input'}:{number}: skipped: {why}", file=problems)

    try:
        text = source.read() if options.log is None else options.log.read_text(encoding="utf-8")
        # Not splitlines(): U+2028 inside a JSON string is no end of a line.
        for row in replay_log(read_log(text.split("\n"), skipped), make, group_by=options.group_by):
            if "_summary" in row or not options.summary_only:
                print(json.dumps(row, ensure_ascii=False), file=out)
        out.flush()
    except (OSError, UnicodeError) as exc:
        print(f"Nothing more was replayed: {exc}", file=problems)
        return 1
    return 0


if __name__ == "__main__":
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # JSON is UTF-8 whatever the locale says.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8")
    sys.exit(main(sys.argv[1:], sys.stdin, sys.stdout, sys.stderr))
