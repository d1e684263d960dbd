"""Secrets of every shape, made when they are needed: none of them stands in a file, and none is real."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable
from typing import Final

LETTERS: Final = string.ascii_letters + string.digits
URL: Final = LETTERS + "-_"
HEX: Final = "0123456789abcdef"


def _of(rng: random.Random, length: int, alphabet: str = LETTERS) -> str:
    # One of each kind first, as real keys of this length practically always have.
    text = rng.choice(string.ascii_lowercase) + rng.choice(string.digits) + rng.choice(string.ascii_uppercase)
    return text + "".join(rng.choices(alphabet, k=length - 4)) + rng.choice(LETTERS)


def _password(rng: random.Random) -> str:
    return _of(rng, 10) + rng.choice("!%^*+~")


def _jwt(rng: random.Random) -> str:
    def part(data: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")

    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part({'sub': rng.randrange(10**9)})}.{_of(rng, 43, URL)}"


def _pem(rng: random.Random) -> str:
    lines = [_of(rng, 64, LETTERS + "+/") for _ in range(4)]
    kind = rng.choice(["RSA ", "", "EC ", "OPENSSH "])
    return "\n".join([f"-----BEGIN {kind}PRIVATE KEY-----", *lines, f"-----END {kind}PRIVATE KEY-----"])


Made = tuple[str, str]
"""What is written, and the part of it that must not leave."""


def _alone(make: Callable[[random.Random], str]) -> Callable[[random.Random], Made]:
    def both(rng: random.Random) -> Made:
        secret = make(rng)
        return secret, secret

    return both


def _within(form: str, make: Callable[[random.Random], str]) -> Callable[[random.Random], Made]:
    def both(rng: random.Random) -> Made:
        secret = make(rng)
        return form.replace("@@", secret), secret

    return both


def _upper(rng: random.Random, length: int) -> str:
    return "".join(rng.choices(string.ascii_uppercase + string.digits, k=length))


def _basic(rng: random.Random) -> str:
    return base64.b64encode(f"desk:{_password(rng)}".encode()).decode()


SHAPES: Final[dict[str, Callable[[random.Random], Made]]] = {
    "openai": _alone(lambda r: "sk-" + _of(r, 48)),
    "openai-project": _alone(lambda r: "sk-proj-" + _of(r, 120, URL)),
    "anthropic": _alone(lambda r: "sk-ant-api03-" + _of(r, 93, URL) + "AA"),
    **{f"github-{p}": _alone(lambda r, p=p: p + _of(r, 36)) for p in ("ghp_", "gho_", "ghs_")},
    "github-fine": _alone(lambda r: "github_pat_" + _of(r, 22) + "_" + _of(r, 59)),
    "gitlab": _alone(lambda r: "glpat-" + _of(r, 20)),
    "aws-id": _alone(lambda r: "AKIA" + _upper(r, 16)),
    "aws-session-id": _alone(lambda r: "ASIA" + _upper(r, 16)),
    "google": _alone(lambda r: "AIza" + _of(r, 35, URL)),
    "hugging-face": _alone(lambda r: "hf_" + _of(r, 34)),
    **{
        f"slack-{p}": _alone(lambda r, p=p: f"xox{p}-{r.randrange(10**11, 10**12)}-{r.randrange(10**12)}-{_of(r, 24)}")
        for p in "bpars"
    },
    "slack-hook": _within(
        "https://hooks.slack.com/services/@@", lambda r: f"T{_upper(r, 8)}/B{_upper(r, 8)}/{_of(r, 24)}"
    ),
    "stripe": _alone(lambda r: "sk_live_" + _of(r, 24)),
    "stripe-restricted": _alone(lambda r: "rk_live_" + _of(r, 24)),
    "sendgrid": _alone(lambda r: f"SG.{_of(r, 22, URL)}.{_of(r, 43, URL)}"),
    "npm": _alone(lambda r: "npm_" + _of(r, 36)),
    "pypi": _alone(lambda r: "pypi-AgEIcHlwaS5vcmc" + _of(r, 100, URL)),
    "azure-account": _within(
        "DefaultEndpointsProtocol=https;AccountName=desk;AccountKey=@@;EndpointSuffix=core.windows.net",
        lambda r: _of(r, 86, LETTERS + "+/") + "==",
    ),
    "azure-sas": _within(
        "https://desk.blob.core.windows.net/a?sv=2022-11-02&sig=@@&se=2030-01-01", lambda r: _of(r, 43) + "%3D"
    ),
    "telegram": _alone(lambda r: f"{r.randrange(10**8, 10**10)}:AA{_of(r, 33, URL)}"),
    "jwt": _alone(_jwt),
    "pem": _alone(_pem),
    "bearer-header": _within("Authorization: Bearer @@", lambda r: _of(r, 32)),
    "bearer": _within("sent Bearer @@ along", lambda r: _of(r, 32)),
    "basic-header": _within("Authorization: Basic @@", _basic),
    "basic": _within("curl with Basic @@ failed", _basic),
    "url": _within("postgres://desk:@@@db.example.org:5432/orders", lambda r: _of(r, 12)),
    "redis-url": _within("redis://:@@@cache:6379/0", lambda r: _of(r, 12)),
    "cookie": _within("session=@@; Path=/", lambda r: _of(r, 32, HEX)),
    "cookie-header": _within("Cookie: a=1; sid=@@", lambda r: _of(r, 32, HEX)),
    "environment": _within("OPENWEATHER_API_KEY=@@", lambda r: _of(r, 32, HEX)),
    "export": _within("export DB_PASSWORD='@@'", _password),
    "aws-secret": _within("aws_secret_access_key = @@", lambda r: _of(r, 40, LETTERS + "/+")),
    "query": _within("https://api.example.org/v1?token=@@&page=2", lambda r: _of(r, 24)),
    "json": _within('{"user": "desk", "password": "@@"}', _password),
    "python": _within("{'user': 'desk', 'password': '@@'}", _password),
    "yaml": _within("client_secret: @@\nregion: eu", lambda r: _of(r, 28)),
    "words": _within("The API key: @@", lambda r: _of(r, 32)),
}


def made(shape: str, seed: int = 0) -> Made:
    """Return a text of one shape and the secret in it; the same for the same seed."""
    return SHAPES[shape](random.Random(f"{shape}/{seed}"))


def beside_an_id(seed: int = 0) -> tuple[str, str, str]:
    """Return the lines of a credentials report with an AWS id and its secret key beside it, without a name."""
    rng = random.Random(seed)
    key_id, key = "AKIA" + _upper(rng, 16), _of(rng, 40, LETTERS + "/+")
    return f"desk,{key_id},{key},active", key_id, key
