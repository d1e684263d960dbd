"""The small words everything else is built of: redaction, escaping, tokens, time, identity."""

from __future__ import annotations

import html
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetic_nb.clock import SystemClock
from noetic_nb.ids import SystemIds
from noetic_nb.markup import escape
from noetic_nb.redact import REDACTED, redact, redact_text
from noetic_nb.testing import FakeClock, SeededIds
from noetic_nb.tokens import estimate_tokens, utf16_units

KEYS = [
    "sk-proj-abcdefghijklmnopqrstuvwx0123",
    "-".join(["sk", "ant", "api03", "abcdefghij" * 3]),
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-123456789012-abcdefghijkl",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
]


@pytest.mark.parametrize("key", KEYS)
def test_a_credential_inside_text_is_hidden(key: str) -> None:
    assert key not in redact_text(f"use {key} please")
    assert REDACTED in redact_text(f"use {key} please")


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "apiKey",
        "API-KEY",
        "authorization",
        "Authorization",
        "password",
        "clientSecret",
        "x-api-key",
        "cookie",
    ],
)
def test_a_key_that_names_a_secret_hides_its_value(name: str) -> None:
    assert redact({"headers": [{name: "hunter22"}]}) == {"headers": [{name: REDACTED}]}


@pytest.mark.parametrize(
    "name", ["input_tokens", "token_budget", "tokens", "keyboard", "monkey", "secretary", "passage"]
)
def test_a_key_that_only_sounds_like_one_is_kept(name: str) -> None:
    assert redact({name: 7}) == {name: 7}


def test_redaction_copies_and_keeps_the_shape() -> None:
    data = {"a": [1, 2.5, None, True, {"b": "plain"}]}

    assert redact(data) == data
    assert redact(data) is not data


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
def test_redaction_is_stable(text: str) -> None:
    once = redact_text(text)

    assert redact_text(once) == once


@given(st.text(max_size=80))
def test_escaped_text_holds_no_markup_and_no_invisible_sign(text: str) -> None:
    shown = escape(text)

    assert not set("<>\"'") & set(shown)
    assert not any(ord(char) < 32 and char not in "\t\n\r" for char in shown)
    assert not any("\u202a" <= char <= "\u202e" or "\u2066" <= char <= "\u2069" for char in shown)
    assert html.unescape(shown) == "".join(f"[U+{ord(char):04X}]" if is_invisible(char) else char for char in text)


def is_invisible(char: str) -> bool:
    """Tell whether a reader would not see a character, or see others in another order."""
    if char in "\t\n\r":
        return False
    overrides = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
    return char in overrides or unicodedata.category(char) in ("Cc", "Cs")


@given(st.text(max_size=80))
def test_the_estimate_is_a_quarter_of_the_units_rounded_up(text: str) -> None:
    units = len(text.encode("utf-16-le", "surrogatepass")) // 2

    assert utf16_units(text) == units
    assert estimate_tokens(text) == (units + 3) // 4


def test_the_system_clock_never_goes_back_and_knows_the_epoch() -> None:
    clock = SystemClock()
    first, second = clock.monotonic_ms(), clock.monotonic_ms()

    assert second >= first
    assert clock.now_ms() > 1_700_000_000_000


def test_a_fake_clock_moves_only_when_told() -> None:
    clock = FakeClock(1_000)
    clock.advance(5)

    assert (clock.now_ms(), clock.now_ms(), clock.monotonic_ms()) == (1_005, 1_005, 5)
    with pytest.raises(ValueError, match="cannot be set back"):
        clock.advance(-1)


def test_ids_do_not_repeat_and_seeded_ones_are_the_same_again() -> None:
    system = {SystemIds().new("item") for _ in range(1_000)}
    seeded = [SeededIds(3).new("turn"), SeededIds(3).new("turn"), SeededIds(4).new("turn")]

    assert len(system) == 1_000
    assert seeded[0] == seeded[1] != seeded[2]
