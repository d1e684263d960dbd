"""Hypothesis strategies for items: JSON data, messages, calls and whole conversations."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

TEXT = st.text(max_size=12)
"""Any text without lone surrogates."""

RAW_TEXT = st.text(st.characters(), max_size=8)
"""Any text, lone surrogates included."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | RAW_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(RAW_TEXT, inner, max_size=3),
    max_leaves=8,
)

EXTRA = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | RAW_TEXT,
        "status": st.sampled_from([None, "in_progress", "completed", "incomplete", "failed"]),
        **dict.fromkeys(["x", "note", "score", "text"], JSON),
    },
)


def message(role: str, text: str, **more: Any) -> dict[str, Any]:
    """Return a plain message item."""
    part = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": part, "text": text}], **more}


MESSAGES = st.builds(message, st.sampled_from(["user", "developer", "system", "assistant"]), TEXT)
CALL_IDS = st.sampled_from(["c1", "c2", "c3", "c4"])
CALLS = st.builds(lambda c: {"type": "function_call", "callId": c, "name": "t", "arguments": "{}"}, CALL_IDS)
OUTPUTS = st.builds(lambda c, t: {"type": "function_call_output", "callId": c, "output": t}, CALL_IDS, TEXT)
ITEMS = MESSAGES | CALLS | OUTPUTS
CONVERSATIONS = st.lists(ITEMS, max_size=24)


def with_extra(item: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """Return an item with additional keys at the end."""
    return item | {key: value for key, value in extra.items() if key not in item}


ITEMS_WITH_EXTRA = st.builds(with_extra, ITEMS, EXTRA)
