"""Texts around decisions are checked for secrets lazily, but always before a decision is shown."""

from __future__ import annotations

from typing import Any

import pytest

from noetic_nb.events import TurnStarted, Where
from noetic_nb.redact import Redaction
from noetic_nb.runs._regulation import decision_words as decision_redaction
from noetic_nb.runs._regulation.decision_words import AT_ONCE, MOST_UNREAD, DecisionRedaction

DECISION = {"kind": "scope_drift_warn", "drift_tokens": ["hunter2secret"]}


def said(text: str) -> TurnStarted:
    return TurnStarted(Where("t1", "e1", 1), 0.0, "turn-1", 0, 1, text)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record how many texts are checked at a time."""
    counts: list[int] = []
    are_plain = Redaction.are_plain

    def counted(rule: Redaction, texts: Any) -> bool:
        counts.append(len(texts))
        return are_plain(rule, texts)

    monkeypatch.setattr(decision_redaction.Redaction, "are_plain", counted)
    return counts


def test_texts_of_a_recording_wait_for_the_first_decision_that_is_shown(looked: list[int]) -> None:
    words = DecisionRedaction(grows=False)
    for order in range(3 * MOST_UNREAD):
        words.take(said(f"Where is order {order}?"))
    words.take(said("PASSWORD=hunter2secret fails"))
    before = list(looked)

    assert words.decision(DECISION)["drift_tokens"] == ["[redacted]"]
    assert before == []
    assert sum(looked) >= 3 * MOST_UNREAD + 1


def test_a_run_that_goes_on_after_a_recording_looks_through_few_texts_with_each_event(looked: list[int]) -> None:
    words = DecisionRedaction(grows=False)
    words.take(said("PASSWORD=hunter2secret fails"))
    for order in range(3 * MOST_UNREAD):
        words.take(said(f"Where is order {order}?"))

    words.grows = True
    for order in range(MOST_UNREAD):
        words.take(said(f"Thanks for order {order}."))

    assert 0 < max(looked) <= AT_ONCE
    assert sum(looked) >= 2 * MOST_UNREAD, "what waits becomes less, not more"
    assert words.decision(DECISION)["drift_tokens"] == ["[redacted]"]
