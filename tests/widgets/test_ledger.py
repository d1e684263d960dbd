"""The ledger: every decision, redacted arguments, bounded rows."""

from __future__ import annotations

from noetic_nb.runs import Run
from noetic_nb.widgets import Ledger
from noetic_nb.widgets.ledger.ledger import ROWS_SHOWN
from tests.widgets.scenes import HOSTILE, decisions, hostile_run, run_of_events


def test_newest_decisions_are_on_top_with_action_guidance_and_rules() -> None:
    with Ledger(run_of_events(decisions())) as opened:
        lines = opened.to_text().splitlines()

    assert lines[0] == "Ledger. 4 decisions: 2 allow, 1 deny, 1 guide"
    assert lines[2].startswith("  turn 6  deny   cancel_reservation")
    assert "by no_late_cancellation, confirm_before_writing: Basic economy" in lines[2]


def test_secrets_in_arguments_are_redacted() -> None:
    with Ledger(run_of_events(decisions())) as opened:
        everything = f"{opened.snapshot} {opened.to_html()} {opened.to_text()}"

    assert "hidden-anyway" not in everything
    assert "[redacted]" in everything


def test_rows_are_bounded_and_the_rest_is_counted() -> None:
    run = Run()
    with Ledger(run) as opened:
        for _ in range(ROWS_SHOWN):
            for event in decisions()[:2]:
                run.append(event)

        assert len(opened.snapshot["rows"]) == ROWS_SHOWN
        assert opened.snapshot["total"] == 2 * ROWS_SHOWN
        assert f"{ROWS_SHOWN} earlier decisions" in opened.to_html()


def test_one_thread_can_be_chosen() -> None:
    with Ledger(run_of_events(decisions()), thread_id="other") as opened:
        assert opened.snapshot["total"] == 0


def test_hostile_text_never_becomes_html() -> None:
    with Ledger(hostile_run()) as opened:
        html = opened.to_html()

    for piece in ("<script", "<img", "<svg onload", "<b>"):
        assert piece not in html
    assert len(html) < 40_000 + sum(len(text) for text in HOSTILE[:-2])
