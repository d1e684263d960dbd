"""Displays of a run stay small and free of secrets, whatever its ids and texts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from noetic_nb.events import RunEvent, SteeringDecided, TurnCompleted, TurnStarted, Where
from noetic_nb.redact import MARGIN, redact_head
from noetic_nb.redact import _redaction as redaction
from noetic_nb.runs import Run
from noetic_nb.runs._plain_text import plain, plain_data, plain_line
from noetic_nb.widgets import Ledger, TokenAllocation
from tests.matrix import several
from tests.runs.factories import conversation

KEY = "sk-proj-Q7wErTy9uIoP3aSdFgHjKlZx"
HEAD = KEY[:14]  # the shortest prefix of the key that would be useful
PEM = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0B\n" * 120 + "-----END PRIVATE KEY-----\n"
MOST = 200_000

PIECES = st.sampled_from([f" {KEY} ", PEM, "&\"'<>", "\u202e", "\ud800", "🦊", "\n", " ", "x", "\\", "password="])
HOSTILE = st.builds(
    lambda pieces, times, tail: "".join(pieces) * times + tail,
    st.lists(PIECES, min_size=1, max_size=6),
    st.sampled_from([1, 2, 50, 900]),
    st.sampled_from(["", f" {KEY}", "&" * 20_000]),
)


def renamed(events: list[RunEvent], name: str, text: str) -> list[RunEvent]:
    """Return the events with every id and text replaced."""
    made: list[RunEvent] = []
    for event in events:
        event = replace(event, where=Where(name, name, event.where.turn))
        match event:
            case TurnStarted():
                event = replace(event, query=text, turn_id=name)
            case TurnCompleted():
                event = replace(event, text=text, stopped={"kind": "circuit_break", "reason": {"kind": text}})
            case SteeringDecided():
                event = replace(event, rule_ids=(name,), guidance=text, tool_name=name, args={name: text, "a": [text]})
        made.append(event)
    return made


@settings(
    max_examples=several(6, 60), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(HOSTILE, HOSTILE)
def test_a_run_with_hostile_ids_is_shown_small_and_without_secrets(name: str, text: str) -> None:
    run = Run(name, events=renamed(conversation(30), name, text))

    html = run._repr_html_()

    assert len(html.encode("utf-8", "strict")) < MOST
    assert len(repr(run)) < 1_000
    assert HEAD not in html
    assert HEAD not in repr(run)


@pytest.mark.parametrize("piece", ["&", "\u202e", "🦊", '"', "\ud800", "'"])
def test_the_table_of_a_run_has_a_size_that_no_escape_exceeds(piece: str) -> None:
    run = Run(piece * 10_000, events=renamed(conversation(130), piece * 10_000, piece * 10_000))

    html = run._repr_html_()

    assert len(html.encode()) < MOST
    shown = html.count("<tr>") - 1
    assert 0 < shown <= 100
    assert f"the first {shown} of them below" in html


def test_numbers_of_hostile_length_are_shown_short() -> None:
    huge = 10**5_000
    started, *_ = conversation(1)
    run = Run("r1", events=[replace(started, where=Where("t1", "e1", huge))])

    assert len(run._repr_html_()) < 3_000  # style sheet included


@pytest.mark.parametrize("show", [plain, plain_line, lambda text, n: plain_data({"a": text}, n), redact_head])
@pytest.mark.parametrize("lead", ["", PEM, PEM * 4, f"{KEY} " * 400], ids=["none", "pem", "pems", "keys"])
def test_no_cut_lets_the_head_of_a_secret_out(show: Any, lead: str) -> None:
    # Around every length limit: that of the shown part, and that of the checked part.
    for place in (60, 80, MARGIN + 80, 4 * 80 + MARGIN):
        for shift in (-len(KEY), -len(KEY) + 14, -10, -1, 0, 1):
            text = f"{lead}{'.' * max(0, place + shift - len(lead))} {KEY} and so on" + "." * 3 * MARGIN
            assert HEAD not in show(text, 80), (place, shift)


def test_only_the_beginning_of_a_long_text_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    spans_of = redaction._spans_of
    for name in ("_spans_of", "_short_spans", "_head_spans"):
        monkeypatch.setattr(redaction, name, lambda text: searched.append(len(text)) or spans_of(text))
    long = "a b " * 500_000
    run = Run(long, events=renamed(conversation(3), long, long))

    run._repr_html_(), repr(run)
    for view in (Ledger(run), TokenAllocation(run)):
        assert len(view.to_html()) < MOST
        assert len(json.dumps(view.to_text())) < MOST
        view.close()

    assert MARGIN < max(searched) < 3 * MARGIN


def test_the_beginning_of_a_long_text_is_known_by_all_that_is_read_of_it() -> None:
    read = 80 + MARGIN
    text = f"{'.' * 60} {KEY}".ljust(read, ".") + "behind"
    # Other texts of the same length with the same beginning.
    others = [text[: read - 1] + "x" + text[read:], text.replace(KEY, KEY[::-1])]

    assert redact_head(text, 80) == redact_head(text, 80) == redact_head(others[0], 80)
    assert HEAD not in redact_head(text, 80)
    assert redact_head(others[1], 80) == others[1][:80]
    assert redact_head(text, 61) != redact_head(text, 80)
