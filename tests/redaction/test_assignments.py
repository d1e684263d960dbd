"""What is assigned to secret names is found wherever it stands: the search begins at the lines that have such a name."""

from __future__ import annotations

import time

import pytest

from noetic_nb.redact._levels import spans_of

PLAIN = "An ordinary line: with a sign.\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("the password:\n   hunter2x9Z and more", ["hunter2x9Z"]),
        ("token=A1b2C3d4e5.session id: q7w8e9r0t1", ["A1b2C3d4e5.session", "q7w8e9r0t1"]),
        ("İİİ\npassword: hunter2x9Z", ["hunter2x9Z"]),
        ('{"auth":\n {"key": "s3cr3tXX1"}}', ["s3cr3tXX1"]),
        # The line before has the sign, of which `token` is part of the value.
        ("see:\ntoken = hunter2x9Z", []),
        ("see:\n\n\n\ntoken = hunter2x9Z", []),
        ("see:\n\n\n\n\ntoken = hunter2x9Z", ["hunter2x9Z"]),
        ("see:\nto:\npassword = hunter2x9Z", ["hunter2x9Z"]),
    ],
)
def test_lines_before_do_not_change_what_is_found(text: str, found: list[str]) -> None:
    for before in ("", PLAIN, PLAIN * 3 + "\n"):
        assert [span.secret for span in spans_of(before + text)] == found


@pytest.mark.parametrize("line", ["password:\n", "see:\n", "password: x\n", "password=", "token ", "see:\npassword\n"])
def test_the_search_grows_with_the_text_alone(line: str) -> None:
    def seconds(count: int) -> float:
        start = time.process_time()
        spans_of(line * count + "the password: hunter2x9Z")
        return time.process_time() - start

    assert seconds(40_000) < 40 * max(seconds(4_000), 0.001)
