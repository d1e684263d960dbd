"""The texts of a decision: those of its row, and its details.

Arguments and answers are redacted as a whole before they are cut, since half a credential does not look like one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from noetic_nb.events import ErrorRaised, ModelCalled, SteeringDecided
from noetic_nb.items._build import response_text
from noetic_nb.redact import MARGIN, clip_data, redact, redact_text
from noetic_nb.runs._plain_text import plain, plain_data, plain_line

OUTCOMES: Final = {
    "error": "a rule failed",
    "unparseable": "judge unreadable",
    "timeout": "out of time",
    "cancelled": "cut off",
    "uninitialised": "never initialised",
    "disabled": "layer disabled",
    "unknown_rule_target": "names what no tool has",
    "late": "late verdict",
    "late_fault": "judge failed later",
    "approved": "a person approved",
    "refused": "a person refused",
    "nobody": "nobody to ask",
    "stopped": "turn stopped",
}
"""What became of an evaluation, in words."""

# A row is read at a glance and travels in a message of 2 kB; everything is below the table.
ARGS_LENGTH: Final = 160
GUIDANCE_LENGTH: Final = 200
RULES_LENGTH: Final = 160
FULL_LENGTH: Final = 8_000
# What is searched of one decision.
SEARCHED: Final = 20_000
_AROUND: Final = 60


def answer_text(answer: ModelCalled | None) -> str:
    """Return the text of a response, as rules are given it."""
    return "" if answer is None else response_text(answer.items)


def answer_parts(text: str, matched: Iterable[str], length: int) -> list[list[Any]]:
    """Return a piece of a response as texts, each with whether the rules decided on it.

    The piece is around the first part that was found; what looks like a credential is hidden.

    Examples
    --------
    >>> answer_parts("We promise everything.", ("promise",), 80)
    [['We ', False], ['promise', True], [' everything.', False]]
    """
    wanted = [part for part in matched if part]
    first = min([place for part in wanted if (place := text.find(part)) >= 0], default=0)
    begin = max(0, first - MARGIN)
    clean = redact_text(text[begin : first + length + MARGIN])
    place = min([place for part in wanted if (place := clean.find(part)) >= 0], default=0)
    start = 0 if place < length // 2 else place - _AROUND
    piece = clean[start : start + length]
    parts: list[list[Any]] = [["…", False]] if start or begin else []
    parts += _split(piece, wanted)
    if len(clean) > start + length or len(text) > first + length + MARGIN:
        parts.append(["…", False])
    return [[plain(part, length + MARGIN), found] for part, found in parts]


def _split(text: str, wanted: list[str]) -> list[list[Any]]:
    parts: list[list[Any]] = []
    while text:
        places = [(place, -len(part), part) for part in wanted if (place := text.find(part)) >= 0]
        if not places:
            parts.append([text, False])
            break
        place, _, part = min(places)
        if place:
            parts.append([text[:place], False])
        parts.append([part, True])
        text = text[place + len(part) :]
    return parts


def row_texts(event: SteeringDecided | ErrorRaised, answer: ModelCalled | None) -> dict[str, Any]:
    """Return the texts of a row: ``tool``, ``about`` (parts, as `answer_parts`), ``guidance`` and ``rules``."""
    if isinstance(event, ErrorRaised):
        about = [["The turn ended; nothing was decided.", False]]
        return {"tool": "", "about": about, "guidance": plain(event.message, GUIDANCE_LENGTH), "rules": ""}
    if event.args is not None:
        about = [[plain_data(event.args, ARGS_LENGTH), False]]
    elif answer is not None:
        about = answer_parts(answer_text(answer), event.matched, ARGS_LENGTH)
    else:
        about = [[plain(part, ARGS_LENGTH), True] for part in event.matched]
    return {
        "tool": "" if event.hook == "init" else plain("response" if event.tool_name is None else event.tool_name),
        "about": about,
        "guidance": "" if event.guidance is None else plain_line(event.guidance, GUIDANCE_LENGTH),
        "rules": plain(", ".join([plain(rule_id) for rule_id in event.rule_ids]), RULES_LENGTH),
    }


def argument_rows(args: Mapping[str, Any]) -> list[list[str]]:
    """Return every argument with its whole value.

    Examples
    --------
    >>> argument_rows({"path": "/etc", "token": "hunter22"})
    [['path', '"/etc"'], ['token', '"[redacted]"']]
    """
    small, _ = clip_data(args, FULL_LENGTH + MARGIN)
    known: Mapping[str, Any] = redact(small)
    return [[plain(name), plain_data(value, FULL_LENGTH)] for name, value in known.items()]


def search_text(event: SteeringDecided | ErrorRaised, answer: ModelCalled | None) -> str:
    """Return the words that a decision is found by: of its arguments or response, guidance, faults and rules."""
    if isinstance(event, ErrorRaised):
        return f"{event.error_kind} {event.message[:SEARCHED]}"
    parts = [
        event.action,
        event.hook.replace("_", " "),
        event.tool_name or "",
        event.guidance or "",
        event.where.thread_id,
    ]
    if event.outcome is not None:
        parts += [event.outcome, OUTCOMES.get(event.outcome, "")]
    parts += event.rule_ids
    parts += event.matched
    for fault in event.faults:
        parts += fault
    if event.args:
        parts.append(json.dumps(event.args, ensure_ascii=False, default=str)[:SEARCHED])
    if answer is not None:
        parts.append(answer_text(answer)[:SEARCHED])
    return " ".join(parts)
