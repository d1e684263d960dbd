"""What is a secret, what is not, and that nothing beside a secret changes."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetic_nb.lab import datasets
from noetic_nb.redact import REDACTED, Redaction, is_secret_name, redact, redact_text
from noetic_nb.redact._levels import MAX_LEVELS
from tests.matrix import matrix, several
from tests.redaction.sentences import SENTENCES
from tests.redaction.shapes import SHAPES, beside_an_id, made

ROOT = Path(__file__).parents[2]

WRITTEN: dict[str, Callable[[str], str]] = {
    "alone": lambda text: text,
    "in a sentence": lambda text: f"It was\n{text}\nsince May.",
    "in JSON": lambda text: json.dumps({"note": f'one\n{text}\ttwo \\ "three"'}),
    "in JSON in JSON": lambda text: json.dumps({"arguments": json.dumps({"note": f"a\n{text}\n"})}),
    "four deep": lambda text: json.dumps(json.dumps(json.dumps(json.dumps([text])))),
    "spelled in code points": lambda text: '"' + "".join(f"\\u{ord(c):04x}" for c in text) + '"',
    "with escaped slashes": lambda text: json.dumps({"note": text}).replace("/", "\\/"),
}


def read(text: str) -> str:
    """Return JSON text with every layer of it read."""
    for _ in range(6):
        try:
            data = json.loads(text)
        except ValueError:
            break
        text = data if isinstance(data, str) else next(iter(data.values() if isinstance(data, dict) else data))
    return text


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", WRITTEN)
def test_a_secret_of_every_shape_is_found_however_it_is_written(shape: str, form: str) -> None:
    for seed in range(12):
        text, secret = made(shape, seed)
        written = WRITTEN[form](text)

        clean = redact_text(written)

        assert secret not in clean
        assert secret not in read(clean)
        if form not in ("alone", "in a sentence"):
            json.loads(clean)
        if shape != "cookie-header":  # all of a cookie header is a secret
            assert read(clean).replace(REDACTED, secret) == read(written)
        assert redact_text(clean) == clean


def test_a_secret_key_beside_an_id_is_found() -> None:
    for seed in range(20):
        text, key_id, key = beside_an_id(seed)

        clean = redact_text(text)

        assert clean == "desk,[redacted],[redacted],active"
        assert key_id not in clean
        assert key not in clean


def test_a_private_key_that_was_cut_off_is_found_and_the_rest_stays() -> None:
    text, _ = made("pem")
    cut = "\n".join(text.splitlines()[:3])

    assert redact_text(f"{cut}\n\nwas all.") == f"{REDACTED}\n\nwas all."
    assert redact_text("-----BEGIN PRIVATE KEY----- opens it") == "-----BEGIN PRIVATE KEY----- opens it"


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "passwd",
        "pwd",
        "pass",
        "passphrase",
        "secret",
        "token",
        "api_key",
        "apikey",
        "access_key",
        "client_secret",
        "credential",
        "credentials",
        "auth",
        "authorization",
        "cookie",
        "session_token",
        "sessionid",
        "id_token",
        "refresh_token",
        "connection_string",
        "dsn",
        "private_key",
        "pin",
        "otp",
        "webhook",
        "apiKey",
        "API-KEY",
        "X-Api-Key",
        "clientSecret",
        "dbPassword",
        "DB_PASSWORD",
        "userPin",
        "new_password",
        "OPENAI_API_KEY",
        "aws_secret_access_key",
        "webhook_url",
        "password2",
        "HTTPAuthorization",
        "bearer",
        "Set-Cookie",
    ],
)
def test_a_key_that_names_a_secret_hides_its_value(name: str) -> None:
    assert is_secret_name(name)
    assert redact({"a": [{name: "hunter22"}]}) == {"a": [{name: REDACTED}]}
    assert redact_text(json.dumps({"a": 1, name: "hunter"})) == json.dumps({"a": 1, name: REDACTED})
    assert redact({name: ["hunter22", "more"]}) == {name: REDACTED}


@pytest.mark.parametrize(
    "name",
    [
        "token_count",
        "max_tokens",
        "password_reset_count",
        "has_password",
        "cookie_policy",
        "secret_level",
        "auth_method",
        "input_tokens",
        "tokens",
        "token_budget",
        "keyboard",
        "monkey",
        "secretary",
        "passage",
        "author",
        "compass",
        "pinned",
        "spinning",
        "passenger",
        "dsname",
        "key",
        "session",
        "authentication_kind",
        "requires_auth",
        "tokenizer",
    ],
)
def test_a_key_that_only_sounds_like_one_is_kept(name: str) -> None:
    assert not is_secret_name(name)
    assert redact({name: "value of 12 words"}) == {name: "value of 12 words"}


def test_a_name_with_spaces_is_a_name() -> None:
    assert redact({"API key": "k", "user name": "u"}) == {"API key": REDACTED, "user name": "u"}


@pytest.mark.parametrize("value", [True, False, None, 0, 7, 9_999, -3, 0.5, ""])
def test_a_flag_or_a_small_number_is_no_secret(value: Any) -> None:
    assert redact({"password": value}) == {"password": value}
    text = json.dumps({"password": value})
    assert redact_text(text) == text


@pytest.mark.parametrize("name", ["pin", "otp", "pass", "user_pin"])
def test_a_pin_hides_every_number(name: str) -> None:
    assert redact({name: 42}) == {name: REDACTED}
    assert json.loads(redact_text(json.dumps({name: 42}))) == {name: REDACTED}
    nested = redact_text(json.dumps({"arguments": json.dumps({name: 4211})}))
    assert json.loads(json.loads(nested)["arguments"]) == {name: REDACTED}


def test_a_long_number_under_a_secret_key_is_hidden() -> None:
    assert redact({"token": 123_456}) == {"token": REDACTED}


def test_the_schema_of_a_secret_argument_is_no_secret_but_its_default_is() -> None:
    schema = {"properties": {"password": {"type": "string", "default": "hunter22"}, "n": {"type": "integer"}}}

    assert redact(schema)["properties"]["password"] == {"type": "string", "default": REDACTED}
    assert redact(schema)["properties"]["n"] == {"type": "integer"}


def test_keys_of_mappings_are_searched_and_none_is_lost() -> None:
    keys = [made("openai", seed)[1] for seed in range(3)]

    clean = redact(dict.fromkeys(keys, 1))

    assert len(clean) == 3
    assert not any(key in str(clean) for key in keys)


def test_words_of_a_secret_in_a_decision_are_hidden_once_its_text_went_by() -> None:
    _, secret = made("openai-project")
    words = sorted(re.findall(r"[a-z0-9]+", secret.lower()))
    redaction = Redaction()
    redaction.data({"query": f"use {secret}"})

    clean = redaction.data({"drift_tokens": [*words, "refund"], "task_tokens": tuple(words)})

    assert clean == {"drift_tokens": [*[REDACTED] * len(words), "refund"], "task_tokens": (REDACTED,) * len(words)}


def test_a_secret_in_the_tokens_of_a_stream_is_hidden() -> None:
    _, secret = made("openai")
    tokens = [["use ", -0.5], [secret[:7], -0.1], [secret[7:30], -0.1], [secret[30:], -0.2], [" now", -0.3]]

    clean = redact(tokens)

    assert [pair[0] for pair in clean] == ["use ", REDACTED, REDACTED, REDACTED, " now"]
    assert [pair[1] for pair in clean] == [pair[1] for pair in tokens]


# What stays


def test_a_harmless_sentence_stays() -> None:
    for sentence in SENTENCES:
        assert redact_text(sentence) == sentence
        assert redact_text(json.dumps({"text": sentence})) == json.dumps({"text": sentence})


def test_the_packaged_conversations_stay() -> None:
    for run in datasets.airline():
        for thread in run.threads:
            for item in run.log(thread):
                text = json.dumps(item, ensure_ascii=False)
                assert redact_text(text) == text


@pytest.mark.parametrize("path", [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))])
def test_our_own_pages_stay(path: Path) -> None:
    # The examples of the page about secrets have some.
    lines = [line for line in path.read_text().splitlines() if path.name != "secrets.md" or not line.startswith(">>> ")]
    text = "\n".join(lines)

    assert redact_text(text) == text


# Properties

PIECES = st.one_of(
    st.sampled_from([made(shape)[0] for shape in SHAPES]),
    st.sampled_from(
        ["password", "token=", '"', "\\", "'", ": ", "{", "}", " ", "\n", "[redacted]", "Bearer ", "://", "@", "eyJ"]
    ),
    st.text(max_size=6),
)


@settings(max_examples=several(60, 1_000))
@given(st.lists(PIECES, max_size=8))
def test_redaction_is_stable(pieces: list[str]) -> None:
    text = "".join(pieces)
    once = redact_text(text)

    assert redact_text(once) == once
    data = {"password": text, "a": [text, {"pin": 4}], text: None}
    assert redact(redact(data)) == redact(data)


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: (inner,), lambda inner: {"a": inner}])
def test_data_nested_deeper_than_the_stack_is_no_error(wrap: Callable[[Any], Any]) -> None:
    _, secret = made("openai")
    data: Any = secret
    for _ in range(sys.getrecursionlimit() * 3):
        data = wrap(data)

    clean = redact(data)
    while not isinstance(clean, str):
        clean = clean["a"] if isinstance(clean, dict) else clean[0]

    assert clean == REDACTED


def test_data_that_contains_itself_is_read_once() -> None:
    data: dict[str, Any] = {"a": made("openai")[1]}
    data["self"] = [data, data]

    clean = redact(data)

    assert clean["a"] == REDACTED
    assert clean["self"][0] is clean["self"][1] is clean


HOSTILE = {
    "letters": "a",
    "dashes": "sk-",
    "json web tokens": "eyJ",
    "json web tokens with dashes": "-eyJ",
    "names": "password",
    "assignments": "password=",
    "quotes": 'password="',
    "brackets": "[",
    "nested objects": '{"auth":',
    "backslashes": "\\",
    "escaped backslashes": "\\u005c",
    "private keys": "-----BEGIN PRIVATE KEY-----",
    "ends of keys": "-----END -----BEGIN PRIVATE KEY-----",
    "addresses": "://a:",
    "at signs": "://a:b@",
    "aws": "AKIAABCDEFGHIJKLMNOP ",
    "blanks": "Bearer ",
    "cookies": "cookie: ",
    "sendgrid": "SG.",
    "numbers": "12345678:",
    "basic": "basic ",
    "options": "--password ",
    "options with values": "--password x9y8z7w6 ",
    "users": "-u a:",
    "labels": '"name":',
    "pairs": '"name": "password", ',
    "values": '"value":"x","name":"password",',
    "gaps": 'name="password" ',
    "lists": '["password",',
    "elements": "<password>",
    "open elements": "<password ",
    "named elements": '<a name="password" ',
    "blocks": "password: |\n",
    "blocks, deeper and deeper": "password: |\n ",
    "machines": "machine a login b password c ",
    "machines without end": "machine a login b ",
    "heads of tables": "password,password\n",
    "cells": "password,",
    "rows": "password,a\n1,2\n",
    "quoted cells": '"password","',
    "queries": "?key=",
    "vendors": "dapi",
    "vendors with dashes": "xapp-",
    "discord": "M.",
    "mailchimp": "a1-us",
    "full-width": "\uff50=",
}


@matrix("piece", HOSTILE, keep=12)
def test_hostile_text_takes_time_in_proportion_to_its_length(piece: str) -> None:
    def cost(length: int) -> float:
        text = (piece * (length // len(piece) + 1))[:length]
        start = time.process_time()
        redact_text(text)
        return time.process_time() - start

    short = min(cost(20_000) for _ in range(3))

    # Eight times the length; the square of it would be sixty-four times. The best of three looks, of which one is mostly enough.
    assert any(cost(160_000) < 30 * max(short, 0.002) for _ in range(3))


def test_ten_million_letters_are_no_trouble() -> None:
    text = "a" * 10_000_000

    assert redact_text(text) == text


def test_levels_are_bounded() -> None:
    text = "\\" * 100_000

    assert redact_text(text) == text
    assert MAX_LEVELS == 8
