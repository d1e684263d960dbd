"""Names of keys and variables whose values are secret, and the range of a secret in a text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from noetic_nb._core.names import keys

REDACTED: Final = "[redacted]"
PLACEHOLDER: Final = re.compile(r"\[redacted(?: [0-9]+)?\]")
Placeholder: TypeAlias = Callable[[str], str]


class Span(NamedTuple):
    """A range of a text that is a secret."""

    start: int
    end: int
    secret: str
    quote: str = ""  # put around the placeholder if it replaces a JSON number


_WORDS: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
# The last words of a name give its meaning: a `reset_password_token` is a token, a `token_count` is a number.
_ENDINGS: Final = keys(
    "password passwords passwd pwd pass passphrase passcode passcodes secret secrets token apikey credential"
    " credentials creds auth authorization bearer cookie cookies sessionid dsn pin otp webhook accesskey privatekey"
    " connectionstring"
)
_PAIRS: Final = frozenset(
    [
        "api key",
        "api keys",
        "access key",
        "private key",
        "secret key",
        "session key",
        "signing key",
        "encryption key",
        "account key",
        "connection string",
        "session id",
        "otp code",
    ]
)
_MODIFIERS: Final = keys(
    "value hash old new current previous confirm confirmation again repeat prod production dev test staging live"
    " header plain plaintext raw base64 b64 pem"
)
_CLAIMS: Final = keys("has is are needs need requires require required use uses no without with max min num")
# For names without separators between their words.
_IN_ONE_WORD: Final = (
    "password", "passwd", "passphrase", "passcode", "apikey", "secretkey", "accesskey", "privatekey", "apisecret", "apitoken",
    "authtoken", "accesstoken", "refreshtoken", "clientsecret", "sessiontoken", "connectionstring",
)  # fmt: skip
NAME_KEYS: Final = keys("name key header field variable var env id property parameter param option setting")
"""The keys for a name that is beside its value, in lower case."""
VALUE_KEYS: Final = frozenset(["value", "val", "default"])
_ADDRESSES: Final = frozenset({"url", "uri"})
ALWAYS: Final = frozenset({"pin", "otp", "pass", "passcode", "passcodes", "otp code"})
# A smaller number is a count; a larger one may be a code.
SMALLEST_NUMBER: Final = 10_000
_LONGEST_NAME: Final = 128


def secret_word(name: str) -> str | None:
    """Return the word in a name that marks its value as secret."""
    return _secret_word(name[-_LONGEST_NAME:])


@lru_cache(maxsize=4096)  # every event of a run has the same few names
def _secret_word(name: str) -> str | None:
    if not name.isascii():  # full-width letters are letters, too
        name = unicodedata.normalize("NFKC", name)
    words: list[str] = [word.lower() for word in _WORDS.findall(name)]
    while words and (words[-1] in _MODIFIERS or words[-1].isdigit()):
        words.pop()
    if len(words) > 1 and words[-1] in _ADDRESSES and words[-2] in ("webhook", "dsn"):
        words.pop()
    if not words or words[0] in _CLAIMS:
        return None
    if words[-1] in _ENDINGS:
        return words[-1]
    pair = " ".join(words[-2:])
    if pair in _PAIRS:
        return pair
    # passWord and aPiKey are one word each, despite their capitals.
    for word in (words[-1], "".join(words[-2:]), "".join(words[-3:])):
        if word in _ENDINGS or word.endswith(_IN_ONE_WORD):
            return word
    return None


def is_secret_name(name: str) -> bool:
    """Tell whether a key or a variable of this name holds a secret.

    Examples
    --------
    >>> [is_secret_name(name) for name in ("apiKey", "DB_PASSWORD", "token_count", "has_password", "cookie_policy")]
    [True, True, False, False, False]
    """
    return secret_word(name) is not None
