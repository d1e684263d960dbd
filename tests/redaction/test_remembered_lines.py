"""Lines without a sign of a secret are remembered: what is found stays the same, wherever such a line stands again."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetic_nb.redact import Redaction
from noetic_nb.redact._levels import may_hold, spans_of
from tests.matrix import matrix, several
from tests.redaction.shapes import SHAPES, made

KEY = "sk-proj-" + "aB3dE6gH9jK2mN5pQ8sT"
PLAIN = "An ordinary line, longer than what is looked at without remembering it."
TEXTS = [
    f"{PLAIN}\n{KEY}\n{PLAIN}",
    f"{PLAIN}\npassword:\n  hunter2-{'x9' * 8}\n{PLAIN}",
    f"{PLAIN}\n-----BEGIN PRIVATE KEY-----\n{'Ab3d' * 16}\n-----END PRIVATE KEY-----\n{PLAIN}",
    f"{PLAIN}\nCookie:\n session=abc123def456; other=x12345678\n{PLAIN}",
    f'{PLAIN}\n{{"api_key": "{"a1" * 12}"}}',
    f'{PLAIN} "{{\\"api_key\\": \\"{"a1" * 12}\\"}}"',
    f"{PLAIN}\nhttps://ann:hunter2secret@example.org/\n",
    f"{PLAIN}\nConnection string: Server=a;Password=hunter2-{'x9' * 8}",
]


@pytest.mark.parametrize("room", [0, 100, 10_000])
@pytest.mark.parametrize("text", TEXTS)
def test_what_is_found_does_not_depend_on_what_went_before(text: str, room: int) -> None:
    rule = Redaction(remembered=room)
    expected = Redaction().text(text)
    assert expected != text
    for line in text.split("\n"):
        rule.text(f"{PLAIN}\n{line}")
        rule.text(line * 3)

    assert [rule.text(PLAIN), rule.text(text), rule.text(text)] == [PLAIN, expected, expected]
    assert not rule.are_plain([PLAIN, text])
    assert rule.are_plain([PLAIN, f"{PLAIN}\n{PLAIN}"])


def test_no_more_is_remembered_than_there_is_room_for() -> None:
    rule = Redaction(remembered=1_000)

    for number in range(1_000):
        rule.text(f"Line {number}: {PLAIN}")

    assert sum(map(len, rule._known)) <= 1_000


SPELLED: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "in a line of its own": lambda text: f"One.\n- {text}\nTwo.",
    "in JSON in JSON": lambda text: json.dumps(json.dumps({"note": f"a {text}\nb"})),
    "in code points": lambda text: "".join([f"\\u{ord(sign):04X}" for sign in text]),
    "signs and blanks in code points": lambda text: "".join(
        [sign if sign.isalnum() else f"\\u{ord(sign):04x}" for sign in text]
    ),
}


@matrix("shape,spelled", product(SHAPES, SPELLED), keep=66)
def test_no_secret_is_without_a_sign(shape: str, spelled: str) -> None:
    for seed in range(3):
        text = SPELLED[spelled](made(shape, seed)[0])
        rule = Redaction(remembered=10_000)

        assert may_hold(text.split("\n")) or not spans_of(text)
        assert rule.text(text) == Redaction().text(text)


# What signs, names, values and escapes are made of, so that texts out of them are often nearly secrets.
PIECES = [
    "password", "api_key", "token", "Key", "session", "sid", "Cookie", "cookie", "id", " string", "=", ":", "=>", "\n", " ",
    '"', "'", "`", "]", "**", "{", "[", ",", "\\n", "\\u003a", "\\u003D", "\\u000a", "\\\\u003a", "\\", "x9" * 8, "hunter2secret",
    "abc123def456", "sk-", "A1" * 10, "AKIA", "eyJ", ".", "://", "@", "bearer ", "Basic ", "sig", "12345678", "ſ", "İ", "ı", "- ",
    "--", "-u ", "name", "value", ",", ";", "|", "\t", "<", ">", "</", "machine a", " login ann", "?key=", "a1B2c3D4e5", "[", "(",
    ")", "\uff50\uff41\uff53\uff53", "\uff1a", "xapp-", "dapi", "passWord", "user",
]  # fmt: skip


@settings(max_examples=several(200, 10_000))
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_a_text_without_a_sign_holds_nothing_that_would_be_replaced(text: str) -> None:
    assert may_hold(text.split("\n")) or not spans_of(text)


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=10).map("".join), max_size=6))
def test_texts_are_plain_together_only_where_each_is(texts: list[str]) -> None:
    rule = Redaction(remembered=10_000)

    if rule.are_plain(texts):
        assert [Redaction().text(text) for text in texts] == texts
    assert [rule.text(text) for text in texts] == [Redaction().text(text) for text in texts]
