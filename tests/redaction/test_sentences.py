"""Secrets without a sign before them: in sentences, and behind options of one letter."""

from __future__ import annotations

import json
import random

import pytest

from noetic_nb.redact import redact, redact_text
from tests.redaction.sentences import SENTENCES
from tests.redaction.shapes import LETTERS

SAID = [
    "passcode @@",
    "the passcode is @@.",
    "Password was: @@, thanks",
    "password @@",
    'The password for the vault is "@@"',
    "the passwd of bob is '@@'",
    "my pwd is @@",
    "ENV DB_PASSWORD @@",
    "the api key is @@",
    "the client secret is @@",
    "CREATE USER bob IDENTIFIED BY '@@'",
    "ALTER USER bob WITH PASSWORD '@@'",
    "sshpass -p @@ ssh root@host",
    "sshpass -p'@@' ssh root@host",
    "sshpass -p@@ ssh root@host",
    "mysql -u root -p@@ desk",
    "mysqldump -uroot -p@@ desk > desk.sql",
    "mariadb-dump -p'@@' desk",
    "docker login -u bob -p @@ registry.example.org",
    "podman login -p @@",
    "redis-cli -h cache -a @@ ping",
    "ldapsearch -x -D cn=admin -w @@",
    "unzip -P @@ a.zip",
    "7z x -p@@ a.7z",
    "sqlcmd -S db -U sa -P @@",
    "mosquitto_pub -u bob -P @@ -t t",
    "smbclient //host/share -U bob%@@",
]


def secret(seed: int) -> str:
    """Return a password of twelve letters and digits, as a manager of passwords makes them."""
    rng = random.Random(seed)
    return "a7" + "".join(rng.choices(LETTERS, k=8)) + "Q3"


@pytest.mark.parametrize("text", SAID)
def test_it_is_hidden(text: str) -> None:
    for seed in range(20):
        found = secret(seed)
        given = text.replace("@@", found)
        for shown in (redact_text(given), redact_text(json.dumps({"note": given})), str(redact({"note": [given]}))):
            assert found not in shown
        assert redact_text(given) == text.replace("@@", "[redacted]")
        assert redact_text(redact_text(given)) == redact_text(given)


def test_short_codes_are_hidden() -> None:
    for text in (
        "passcode 4821",
        "the PIN is 4821",
        "PIN 482913",
        "OTP code: 482913",
        "otp is 482913",
        "passcode: 4821",
    ):
        assert "48" not in redact_text(text)
    assert redact({"passcode": 4821}) == {"passcode": "[redacted]"}


@pytest.mark.parametrize(
    "words",
    [
        ["sshpass", "-p", "hunter2", "ssh", "host"],
        ["mysql", "-uroot", "-phunter2", "desk"],
        ["docker", "login", "-u", "bob", "-p", "hunter2"],
        ("redis-cli", "-a", "hunter2"),
    ],
)
def test_a_command_as_a_list_is_read_as_one(words: list[str]) -> None:
    assert "hunter2" not in str(redact({"cmd": words}))
    assert "hunter2" not in redact_text(json.dumps({"cmd": words}))
    assert len(redact(words)) == len(words)


def test_a_token_in_the_place_of_a_user_is_hidden() -> None:
    found = secret(1) + secret(2)
    assert redact_text(f"git push https://{found}@github.com/x/y") == "git push https://[redacted]@github.com/x/y"


@pytest.mark.parametrize(
    "text",
    [
        *SENTENCES[::7],
        "docker run -p 8080:80 web",
        "ssh -p 2222 host",
        "sshpass -e ssh -p 2222 host",
        "mysql -u root -p desk",
        "mysql -P 3306 -p$PASSWORD desk",
        "Please pin 2000 posters to the board.",
        "PIN code 560001",
        "boarding pass A1B2C3D4",
        "password reset2",
        "The password is 12 characters long.",
        "The password is required.",
        "Your password expires 2024-01-01.",
        "The token is valid until 2024.",
        "token o200k_base",
        "git clone ssh://git@github.com/x/y",
        "https://firstname.lastname@example.org",
    ],
)
def test_prose_and_other_commands_stay(text: str) -> None:
    assert redact_text(text) == text
