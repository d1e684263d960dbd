"""The one rule for secrets: what looks like a credential never reaches a file, a repr, a trace or an exception.

Two nets: a key that names a secret hides its value, and text is searched for the shapes of common credentials, also
behind the escapes of JSON and in JSON inside JSON. Only the secret itself is replaced, never a character beside it.

References
----------
.. [1] docs/behaviour/secrets.md.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

__all__ = ["REDACTED", "Redaction", "is_secret_name", "redact", "redact_text", "safe_logger"]

REDACTED: Final = "[redacted]"
PLACEHOLDER: Final = re.compile(r"\[redacted(?: [0-9]+)?\]")

# -- names ----------------------------------------------------------------------------------------------------------------

_WORDS: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
# The last words of a name say what it is: a `reset_password_token` is a token, a `token_count` is a number.
_ENDINGS: Final = frozenset(
    [
        "password",
        "passwords",
        "passwd",
        "pwd",
        "pass",
        "passphrase",
        "secret",
        "secrets",
        "token",
        "apikey",
        "credential",
        "credentials",
        "auth",
        "authorization",
        "bearer",
        "cookie",
        "cookies",
        "sessionid",
        "dsn",
        "pin",
        "otp",
        "webhook",
        "accesskey",
        "privatekey",
        "connectionstring",
    ]
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
    ]
)
_MODIFIERS: Final = frozenset(
    [
        "value",
        "hash",
        "old",
        "new",
        "current",
        "previous",
        "confirm",
        "confirmation",
        "again",
        "repeat",
        "prod",
        "production",
        "dev",
        "test",
        "staging",
        "live",
        "header",
        "plain",
        "plaintext",
        "raw",
        "base64",
        "b64",
    ]
)
_CLAIMS: Final = frozenset(
    [
        "has",
        "is",
        "are",
        "needs",
        "need",
        "requires",
        "require",
        "required",
        "use",
        "uses",
        "no",
        "without",
        "with",
        "max",
        "min",
        "num",
    ]
)
_ADDRESSES: Final = frozenset({"url", "uri"})
_ALWAYS: Final = frozenset({"pin", "otp", "pass"})
# A number below it counts something; a longer one may be a code.
SMALLEST_NUMBER: Final = 10_000
_LONGEST_NAME: Final = 128


def _secret_word(name: str) -> str | None:
    """Return the word by which a name says that its value is secret."""
    words: list[str] = [word.lower() for word in _WORDS.findall(name[-_LONGEST_NAME:])]
    while words and (words[-1] in _MODIFIERS or words[-1].isdigit()):
        words.pop()
    if len(words) > 1 and words[-1] in _ADDRESSES and words[-2] in ("webhook", "dsn"):
        words.pop()
    if not words or words[0] in _CLAIMS:
        return None
    if words[-1] in _ENDINGS:
        return words[-1]
    pair = " ".join(words[-2:])
    return pair if pair in _PAIRS else None


def is_secret_name(name: str) -> bool:
    """Tell whether a key or a variable of this name holds a secret.

    Examples
    --------
    >>> [is_secret_name(name) for name in ("apiKey", "DB_PASSWORD", "token_count", "has_password", "cookie_policy")]
    [True, True, False, False, False]
    """
    return _secret_word(name) is not None


# -- shapes ---------------------------------------------------------------------------------------------------------------


def _longest_run(text: str) -> int:
    return max(map(len, re.split(r"[^A-Za-z0-9]+", text)))


def _is_dense(text: str) -> bool:
    """Tell whether a text with dashes is no chain of words."""
    mixed = any(c.isdigit() for c in text) and any(c.isupper() for c in text) and len(text) >= 24
    return mixed or _longest_run(text) >= 16


def _is_basic(text: str) -> bool:
    try:
        return b":" in base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (ValueError, binascii.Error):
        return False


def _is_token(text: str) -> bool:
    return any(c.isdigit() for c in text) or bool(re.search(r"[a-z][A-Z]", text)) or text.endswith("=")


def _is_jwt(text: str) -> bool:
    return len(text) >= 24 and text.count(".") >= 1 and len(text.split(".")[0]) >= 10


def _any(text: str) -> bool:
    return True


def _no_filler(text: str) -> bool:
    return not re.fullmatch(r"[*x.…]+|[<{$%].*", text, re.S)


class _Shape(NamedTuple):
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    holds: Callable[[str], bool]


def _shape(hints: str, pattern: str, holds: Callable[[str], bool] = _any) -> _Shape:
    return _Shape(tuple(hints.split()), re.compile(pattern), holds)


_B: Final = r"(?<![A-Za-z0-9])"
# Each is documented by its issuer, and long enough that prose does not match. A pattern is looked for only where one of
# its hints is in the text: that is what keeps ordinary text cheap. Quantifiers are possessive or end a pattern, so that
# a near miss is never searched twice.
_SHAPES: Final = (
    _shape("sk-", _B + r"(sk-[A-Za-z0-9_\-]{16,})", _is_dense),  # OpenAI, Anthropic, OpenRouter
    _shape("gho_ ghp_ ghs_ ghu_ ghr_", _B + r"(gh[opsur]_[A-Za-z0-9]{20,})"),
    _shape("github_pat_", _B + r"(github_pat_[A-Za-z0-9_]{20,})"),
    _shape("glpat- glptt- gldt- glrt-", _B + r"(gl(?:pat|ptt|dt|rt)-[A-Za-z0-9_\-]{16,})", _is_dense),
    _shape("AKIA ASIA", _B + r"((?:AKIA|ASIA)[A-Z0-9]{16})(?![A-Za-z0-9])"),
    _shape("AIza", _B + r"(AIza[A-Za-z0-9_\-]{30,})"),
    _shape("GOCSPX-", _B + r"(GOCSPX-[A-Za-z0-9_\-]{20,})"),
    _shape("ya29.", _B + r"(ya29\.[A-Za-z0-9_\-]{20,})"),
    _shape("hf_", _B + r"(hf_[A-Za-z0-9]{20,})"),
    _shape("gsk_", _B + r"(gsk_[A-Za-z0-9]{20,})"),
    _shape("xai-", _B + r"(xai-[A-Za-z0-9]{20,})"),
    _shape("xox", _B + r"(xox[a-z][.\-][A-Za-z0-9\-]{10,})", _is_token),
    _shape("hooks.slack.com", r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_\-]{16,})"),
    _shape("/api/webhooks/", r"/api/webhooks/([0-9]{6,24}/[A-Za-z0-9_\-]{20,})"),
    _shape("_live_ _test_", _B + r"([sr]k_(?:live|test)_[A-Za-z0-9]{10,})"),
    _shape("whsec_", _B + r"(whsec_[A-Za-z0-9+/=]{16,})"),
    _shape("SG.", _B + r"(SG\.[A-Za-z0-9_\-]{16,}+\.[A-Za-z0-9_\-]{16,})"),
    _shape("npm_", _B + r"(npm_[A-Za-z0-9]{30,})"),
    _shape("pypi-", _B + r"(pypi-[A-Za-z0-9_\-]{16,})", _is_dense),
    _shape("AccountKey SharedAccessKey", r"(?:AccountKey|SharedAccessKey)\s?=\s?([A-Za-z0-9+/]{20,}={0,2})"),
    _shape("sig=", _B + r"sig=([A-Za-z0-9%+/_\-]{20,}=*)", _is_token),
    _shape(":", r":(?<=[0-9]{8}:)([A-Za-z0-9_\-]{34,36})(?![A-Za-z0-9_\-])", _is_token),  # Telegram
    # Consumes the whole run also where it is no token: a run of "eyJeyJ…" is read once.
    _shape("eyJ", _B + r"(eyJ[A-Za-z0-9_\-]*+(?:\.[A-Za-z0-9_\-]++)*+\.?)", _is_jwt),
    _shape("earer BEARER", r"(?i:\bbearer)[ \t]++([A-Za-z0-9._~+/\-]{16,}+=*+)", _is_token),
    _shape("asic BASIC", r"(?i:\bbasic)[ \t]++([A-Za-z0-9+/]{8,}+={0,2})", _is_basic),
    _shape("@", r"://[^\s/?#@:\"'<>\\]{0,128}:([^\s/\"'<>\\]{1,256})@", _no_filler),
)
_AWS_SECRET: Final = re.compile(r"(?<![A-Za-z0-9/+])([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])")
_AWS_BESIDE: Final = 200  # characters: the next line, field or column
_PEM: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END: Final = re.compile(r"-----END [A-Z0-9 ]{0,40}-----")
_PEM_BODY: Final = re.compile(r"(?:[A-Za-z0-9+/=\s:,.\-()@]|\\[nrt])*+")
_PEM_LINES: Final = re.compile(
    r"(?:\s|\\[nr])*+(?:[A-Za-z0-9+/=]{16,}+(?:\s|\\[nr])*+)*+(?:[A-Za-z0-9+/]{1,64}={1,2})?"
)
_PEM_RUN: Final = re.compile(r"(?:(?!\\[nrt])|(?<=\\[nrt]))([A-Za-z0-9+/]{16,}={0,2})")
_COOKIES: Final = re.compile(r"(?i)\bcookie[\"']?\s{0,3}:\s{0,3}[\"']?([^\r\n\"'\\<>]++)")
_COOKIE: Final = re.compile(r"[\w.\-]{1,64}=[^\s;,]{6,}")
_SESSION: Final = re.compile(
    r"(?i)(?<![A-Za-z0-9])(?:session|session_?id|sid|connect\.sid|jsessionid|phpsessid)=([^\s;,&\"'<>\\]{6,})"
)

# -- assignments ----------------------------------------------------------------------------------------------------------

_NAME_HINTS: Final = [
    "pass",
    "secret",
    "token",
    "key",
    "cred",
    "auth",
    "cookie",
    "session",
    "dsn",
    "pin",
    "otp",
    "webhook",
    "pwd",
    "bearer",
    "connection",
]
_ASSIGNED: Final = re.compile(
    r"(?<![A-Za-z0-9_\-])(?P<name>[A-Za-z_][A-Za-z0-9_\-]*+)(?P<quote>[\"'`]?)(?:\]|\*\*)?"
    r"[ \t]{0,4}(?:=>|:=|==?|:)(?:\*\*)?\s{0,4}(?:(?i:bearer|basic|token|digest|apikey)[ \t]+(?=[^\s\"']))?"
    r"(?P<value>\"(?P<double>(?:[^\"\\\r\n]|\\.)*+)\"?|'(?P<single>(?:[^'\"\\\r\n]|\\.)*+)'?"
    r"|(?P<bare>[^\s\"'`,;&<>(){}\[\]|\\?]++)|(?P<open>[\[{]))"
)
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+\-]?[0-9]+)?")
_NUMERIC: Final = re.compile(r"[0-9.,:/+\-%TZ ]+")
_LETTERS: Final = re.compile(r"[^\W\d]+(?:[_.'’/ \-]+[^\W\d]+)*[.!?:…]*")
_DOTTED: Final = re.compile(r"[A-Za-z_]{1,24}[0-9]{0,2}(?:\.[A-Za-z_]{1,24}[0-9]{0,2})+")
_FILLER: Final = re.compile(r"[*•xX.…_\-]+|[<{$%].*|(?:https?|file|ftp)://.*|[./~].{0,80}", re.S)
_HEADERS: Final = frozenset({"authorization", "bearer"})


def _is_value(text: str, word: str, after: str, *, quoted: bool) -> bool:
    """Tell whether what is assigned in prose or code is a secret: no word, no number and no expression."""
    if PLACEHOLDER.fullmatch(text) or _FILLER.fullmatch(text):
        return False
    if word in _HEADERS and len(text) >= 8:
        return not text.islower() or _longest_run(text) >= 16
    if _NUMERIC.fullmatch(text):
        return word in _ALWAYS and text.isdigit() and 4 <= len(text) <= 10
    if not quoted and (after in ("(", "[") or _DOTTED.fullmatch(text)):
        return False
    if len(text) < (5 if quoted else 6) or (quoted and text.count(" ") > 5):
        return False
    if _LETTERS.fullmatch(text):
        changes = len(re.findall(r"[a-z][A-Z]|[A-Z]{2}[a-z]", text))
        return _longest_run(text) >= (12 if changes >= 3 else 24)
    return True


_PAIR_START: Final = frozenset("{,")


class _Span(NamedTuple):
    start: int
    end: int
    secret: str
    quote: str = ""
    """Put around the placeholder, where a number of JSON becomes text."""


def _flat(text: str, raw: Callable[[int, int], str]) -> Iterator[_Span]:
    """Find the secrets of one level of a text; `raw` returns how a stretch of it is spelled in the text itself."""
    for shape in _SHAPES:
        if not any(hint in text for hint in shape.hints):
            continue
        for match in shape.pattern.finditer(text):
            secret = match[1]
            if not shape.holds(secret) or PLACEHOLDER.fullmatch(secret):
                continue
            start = match.start(1)
            if secret[0] != ":" and shape.hints == (":",):
                while start > 1 and text[start - 2].isdigit():  # the number before it belongs to the token
                    start -= 1
                start -= 1
                secret = text[start : match.end(1)]
            yield _Span(start, match.end(1), secret)
            if shape.hints[0] == "AKIA":
                window = max(0, match.start() - _AWS_BESIDE), match.end() + _AWS_BESIDE
                for beside in _AWS_SECRET.finditer(text, *window):
                    if _is_token(beside[1]) and not beside[1].isdigit():
                        yield _Span(*beside.span(1), beside[1])
    if "PRIVATE KEY" in text:
        yield from _pem(text)
    lower = text.lower()
    if "cookie" in lower:
        for match in _COOKIES.finditer(text):
            if _COOKIE.search(match[1]) and not PLACEHOLDER.search(match[1]):
                yield _Span(*match.span(1), match[1])
    if "=" in text and ("sess" in lower or "sid=" in lower):
        for match in _SESSION.finditer(text):
            if _is_token(match[1]) and not PLACEHOLDER.search(match[1]):
                yield _Span(*match.span(1), match[1])
    if ("=" in text or ":" in text) and any(hint in lower for hint in _NAME_HINTS):
        yield from _assigned(text, raw)


def _pem(text: str) -> Iterator[_Span]:
    last = text.rfind("-----END")
    done = 0
    for match in _PEM.finditer(text):
        if match.start() < done:
            continue
        end = _PEM_END.search(text, match.end()) if match.end() <= last else None
        if end is None:
            lines = _PEM_LINES.match(text, match.end())
            stop = match.end() + len(lines[0].rstrip()) if lines else match.end()
            if stop > match.end():
                yield _Span(match.start(), stop, text[match.start() : stop])
                done = stop
            continue
        done = end.end()
        body = _PEM_BODY.match(text, match.end(), end.start())
        if body is not None and body.end() == end.start():
            if _PEM_RUN.search(text, match.end(), end.start()):
                yield _Span(match.start(), end.end(), text[match.start() : end.end()])
        else:  # lines as pieces of a program or a list: each by itself
            for run in _PEM_RUN.finditer(text, match.end(), end.start()):
                yield _Span(*run.span(1), run[1])


def _before(text: str, place: int) -> str:
    """Return the character before a place, blanks left out."""
    head = text[max(0, place - 64) : place].rstrip()
    return head[-1:]


def _assigned(text: str, raw: Callable[[int, int], str]) -> Iterator[_Span]:
    inside = 0  # what is below a secret key, up to here
    place = 0
    while (match := _ASSIGNED.search(text, place)) is not None:
        name, quote = match["name"], match["quote"]
        # A value may itself be an assignment, as in `--header=token:…`, so the search goes on where it begins.
        place = match.start("value")
        word = _secret_word(name)
        if word is None and name.lower() in ("key", "keys", "string", "id"):
            head = re.search(r"([A-Za-z]{2,12}) $", text[max(0, match.start() - 16) : match.start()])
            word = None if head is None else _secret_word(f"{head[1]} {name}")
        if word is None:
            continue
        # An object's pair: its value is data, and hidden as in a mapping.
        opening = match.start() - 1
        pair = bool(quote) and opening >= 0 and text[opening] == quote and _before(text, opening) in _PAIR_START
        if match["open"] is not None:
            if pair and match.start() >= inside:
                inside = yield from _below(text, match.start("open"), raw)
            continue
        quoted = match["bare"] is None
        content = match["double"] if match["double"] is not None else match["single"]
        if content is None:
            content = match["bare"]
        start = match.start("value") + quoted
        if pair and not quoted:
            number = _NUMBER.fullmatch(content)
            if number and (word in _ALWAYS or abs(float(content)) >= SMALLEST_NUMBER):
                place = start + len(content)
                yield _Span(start, place, content, raw(match.end("name"), match.end("name") + 1))
            continue
        if not quoted:
            content = content.rstrip(".!?:*")
        end = start + len(content)
        if not content or PLACEHOLDER.fullmatch(content):
            continue
        if pair or _is_value(content, word, text[end : end + 1], quoted=quoted):
            place = end
            yield _Span(start, end, content)


_SCALAR: Final = re.compile(
    r"(?P<open>[\[{])|(?P<close>[\]}])|\"(?P<text>(?:[^\"\\]|\\.)*+)\"(?P<key>\s*+:)?|(?P<number>-?[0-9][0-9.eE+\-]*+)"
)
_SCHEMA_TYPE: Final = re.compile(
    r"\{\s*\"(?:type\"\s*:\s*\"(?:string|number|integer|boolean|object|array|null)\"|\$ref\"|anyOf\"|description\"|title\")"
)


def _below(text: str, start: int, raw: Callable[[int, int], str]) -> Generator[_Span, None, int]:
    if _SCHEMA_TYPE.match(text, start):  # a description of the argument, not the argument
        return start
    depth = 0
    for match in _SCALAR.finditer(text, start):
        if match["open"]:
            depth += 1
        elif match["close"]:
            depth -= 1
            if depth <= 0:
                return match.end()
        elif match["number"] is not None:
            if _NUMBER.fullmatch(match["number"]) and abs(float(match["number"])) >= SMALLEST_NUMBER:
                yield _Span(*match.span(), match["number"], raw(start, start) or '"')
        # Words stay: a list under "alternative_auth" names fields.
        elif match["key"] is None and match["text"] and _is_value(match["text"], "secret", "", quoted=True):
            yield _Span(*match.span("text"), match["text"])
    return len(text)


# -- levels ---------------------------------------------------------------------------------------------------------------

_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-fA-F]{4}|[\"\\/bfnrt])")
_SIGNS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
# JSON in JSON doubles its backslashes at every level, so that real text is never much deeper.
MAX_LEVELS: Final = 8


class _Level:
    """A text with its escapes read, and where each of its characters stands in the text before."""

    __slots__ = ("_places", "_sources", "text")

    def __init__(self, source: str) -> None:
        places, sources = array("q", [0]), array("q", [0])
        pieces: list[str] = []
        length = done = 0
        for match in _ESCAPE.finditer(source):
            start, end = match.span()
            pieces.append(source[done:start])
            length += start - done
            sign = source[start + 1]
            pieces.append(chr(int(source[start + 2 : end], 16)) if sign == "u" else _SIGNS.get(sign, sign))
            places.extend((length, length + 1))
            sources.extend((start, end))
            length, done = length + 1, end
        pieces.append(source[done:])
        self.text = "".join(pieces)
        self._places, self._sources = places, sources

    def source(self, start: int, end: int) -> tuple[int, int]:
        """Return the stretch of the text before."""
        places, sources = self._places, self._sources
        at = bisect_right(places, start) - 1
        # A character that was an escape begins where the escape does, however long that is.
        first = sources[at] + start - places[at]
        at = bisect_right(places, end) - 1
        return first, sources[at] + end - places[at]


def _spans(text: str) -> list[_Span]:
    """Find every secret of a text, as stretches of the text itself, in order and apart."""
    levels: list[_Level] = []

    def source(start: int, end: int) -> tuple[int, int]:
        for level in reversed(levels):
            start, end = level.source(start, end)
        return start, end

    def raw(start: int, end: int) -> str:
        first, last = source(start, end)
        return text[first:last]

    view = text
    found: list[_Span] = []
    while True:
        for span in _flat(view, raw):
            start, end = source(span.start, span.end)
            found.append(_Span(start, end, span.secret, span.quote))
        if len(levels) == MAX_LEVELS or "\\" not in view or not _ESCAPE.search(view):
            break
        levels.append(_Level(view))
        view = levels[-1].text
    if len(found) < 2:
        return found
    # The longest of those that begin together comes first, and is the one that is kept.
    found.sort(key=lambda span: (span.start, -span.end))
    apart = [found[0]]
    for span in found[1:]:
        last = apart[-1]
        if span.start >= last.end:
            apart.append(span)
        elif span.end > last.end:
            apart[-1] = _Span(last.start, span.end, text[last.start : span.end], last.quote)
    return apart


# -- the rule -------------------------------------------------------------------------------------------------------------

Placeholder: TypeAlias = Callable[[str], str]
_SHORTEST_TEXT: Final = 8
# Replacing may bring two neighbours together that look like a secret only then.
_ROUNDS: Final = 4
_TOKEN_WORDS: Final = re.compile(r"[^\W_]+")
_WORD_LISTS: Final = frozenset({"drift_tokens", "task_tokens", "driftTokens", "taskTokens"})
_WORD_TEXTS: Final = frozenset({"cluster", "topic_cluster", "topicCluster", "pattern_name", "patternName"})
_SCHEMA_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_SCHEMA_KEYS: Final = frozenset({"$ref", "anyOf", "allOf", "oneOf"})
_SCHEMA_VALUES: Final = frozenset({"default", "const", "enum", "example", "examples"})


def _is_schema(value: Any) -> bool:
    """Tell whether a value describes an argument, as JSON Schema does, rather than being one."""
    if not isinstance(value, Mapping):
        return False
    kind = value.get("type")
    return (isinstance(kind, str) and kind in _SCHEMA_TYPES) or any(key in value for key in _SCHEMA_KEYS)


class Redaction:
    """The rule applied to one file, table or view after the other; it remembers the words of the secrets it has found.

    A list of words made from a text, as a regulator's decision holds, shows a secret in pieces that look like nothing by
    themselves. They are hidden where the text went by before.

    Parameters
    ----------
    placeholder : callable, optional
        Returns what stands in the place of a secret; ``[redacted]`` by default, and always of that form.

    Examples
    --------
    >>> rule = Redaction()
    >>> rule.data({"query": "use AKIAIOSFODNN7EXAMPLE"})
    {'query': 'use [redacted]'}
    >>> rule.data({"drift_tokens": ["akiaiosfodnn7example", "use"]})
    {'drift_tokens': ['[redacted]', 'use']}
    """

    def __init__(self, placeholder: Placeholder | None = None) -> None:
        self._placeholder = placeholder
        self._words: set[str] = set()

    def _hidden(self, secret: str) -> str:
        if len(self._words) < 100_000:  # a bound for hostile runs; an ordinary one has a few dozen
            self._words.update(_TOKEN_WORDS.findall(secret[:10_000].lower()))
        return REDACTED if self._placeholder is None else self._placeholder(secret)

    def text(self, text: str) -> str:
        """Return text without its secrets."""
        if len(text) < _SHORTEST_TEXT:
            return text
        for _ in range(_ROUNDS):
            spans = _spans(text)
            if not spans:
                break
            pieces = []
            done = 0
            for start, end, secret, quote in spans:
                pieces += [text[done:start], quote, self._hidden(secret), quote]
                done = end
            text = "".join([*pieces, text[done:]])
        return text

    def data(self, value: Any) -> Any:
        """Return JSON-like data without its secrets."""
        top: list[Any] = [None]
        made: list[Any] | dict[Any, Any]
        # No recursion: data from outside may be nested deeper than the interpreter can call.
        work: list[tuple[Any, Any, Any, bool]] = [(value, top, 0, False)]
        tuples: list[tuple[Any, Any]] = []
        # What was made of a list or mapping: one that holds itself is read once. The original is kept, so that no other
        # object gets its id meanwhile.
        known: dict[tuple[int, bool], tuple[Any, Any]] = {}
        while work:
            value, parent, place, hide = work.pop()
            if hide and not _is_schema(value):
                parent[place] = self._whole(value)
            elif isinstance(value, str):
                parent[place] = self.text(value)
            elif (id(value), hide) in known:
                parent[place] = known[id(value), hide][1]
            elif isinstance(value, Mapping):
                parent[place] = made = self._mapping(value, hide, work)
                known[id(value), hide] = value, made
            elif isinstance(value, list | tuple):
                parent[place] = made = self._tokens(value) or list(value)
                if isinstance(value, tuple):
                    tuples.append((parent, place))
                else:
                    known[id(value), hide] = value, made
                work.extend((inner, made, at, False) for at, inner in enumerate(made))
            elif isinstance(value, bytes | bytearray):
                text = value.decode("latin-1")
                clean = self.text(text)
                parent[place] = value if clean == text else clean.encode("latin-1", "replace")
            else:
                parent[place] = value
        for parent, place in reversed(tuples):  # inner ones first, while the outer are still lists
            parent[place] = tuple(parent[place])
        return top[0]

    def _mapping(
        self, value: Mapping[Any, Any], schema: bool, work: list[tuple[Any, Any, Any, bool]]
    ) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        later = []
        for key, inner in value.items():
            shown = key
            if isinstance(key, str):
                shown, number = self.text(key), 1
                while shown in made:
                    number += 1
                    shown = f"{self.text(key)} {number}"
            made[shown] = None
            if isinstance(key, str) and key in _WORD_LISTS and isinstance(inner, list | tuple):
                words = [self._word(word) for word in inner]
                made[shown] = tuple(words) if isinstance(inner, tuple) else words
                continue
            if isinstance(key, str) and key in _WORD_TEXTS and isinstance(inner, str) and self._words:
                inner = _TOKEN_WORDS.sub(lambda match: self._word(match[0]), inner)
            hide = (schema and key in _SCHEMA_VALUES) or (
                isinstance(key, str) and self._hides(key, inner) and not (key == "token" and "logprob" in value)
            )
            later.append((inner, made, shown, hide))
        # In reverse, so that secrets are found in the order in which they stand.
        work.extend(reversed(later))
        return made

    @staticmethod
    def _hides(key: str, value: Any) -> bool:
        if value is None or value == "":
            return False
        word = _secret_word(key)
        if word is None:
            return False
        if isinstance(value, bool | int | float) and word not in _ALWAYS:
            return not isinstance(value, bool) and abs(value) >= SMALLEST_NUMBER
        return True

    def _whole(self, value: Any) -> str:
        if isinstance(value, str) and PLACEHOLDER.fullmatch(value):
            return value
        return self._hidden(value if isinstance(value, str) else str(value))

    def _word(self, word: Any) -> Any:
        if not isinstance(word, str) or PLACEHOLDER.fullmatch(word):
            return word
        pieces = _TOKEN_WORDS.findall(word.lower())
        # Also where the text is not known: nobody's word has twenty letters and digits mixed.
        odd = len(word) >= 20 and any(c.isdigit() for c in word) and any(c.isalpha() for c in word)
        return REDACTED if odd or any(piece in self._words for piece in pieces) else self.text(word)

    def _tokens(self, value: list[Any] | tuple[Any, ...]) -> list[Any] | None:
        """Return a list of (token, log-probability) without the tokens that make up a secret; None if it is none."""
        if not value or not all(
            isinstance(pair, list | tuple) and len(pair) > 1 and isinstance(pair[0], str) and isinstance(pair[1], float)
            for pair in value
        ):
            return None
        spans = _spans("".join(pair[0] for pair in value))
        if not spans:
            return None
        made: list[Any] = []
        place = at = 0
        for pair in value:
            end = place + len(pair[0])
            while at < len(spans) and spans[at].end <= place:
                at += 1
            if at < len(spans) and spans[at].start < end:
                made.append(type(pair)([self._hidden(spans[at].secret), pair[1]]))
            else:
                made.append(pair)
            place = end
        return made


def redact_text(text: str) -> str:
    r"""Replace what looks like a credential inside text.

    Parameters
    ----------
    text : str
        Any text; JSON, and JSON inside JSON, is looked into.

    Returns
    -------
    str
        The same text with credentials replaced by ``[redacted]``, and no other character changed.

    Examples
    --------
    >>> redact_text("curl -H 'Authorization: Bearer abcdefghijklmnop'")
    "curl -H 'Authorization: Bearer [redacted]'"
    >>> redact_text("OPENAI_API_KEY=sk-proj-abcdefghijklmnopqrstuvwx")
    'OPENAI_API_KEY=[redacted]'
    >>> redact_text(r'{"arguments": "{\"password\": \"hunter2\"}"}')
    '{"arguments": "{\\"password\\": \\"[redacted]\\"}"}'
    """
    return Redaction().text(text)


def redact(value: Any) -> Any:
    """Return JSON-like data with every secret replaced; the value itself is left alone.

    Parameters
    ----------
    value : object
        Mappings, lists, tuples, text and scalars, nested.

    Returns
    -------
    object
        The same shape; values below a key that names a secret, and credentials inside text, become ``[redacted]``.

    Examples
    --------
    >>> redact({"api_key": "k", "note": "plain", "usage": {"input_tokens": 3}})
    {'api_key': '[redacted]', 'note': 'plain', 'usage': {'input_tokens': 3}}
    """
    return redact_text(value) if isinstance(value, str) else Redaction().data(value)


class _NoSecrets(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redact_text(record.getMessage()), ()
        if record.exc_info and not record.exc_text:
            written = logging.Formatter().formatException(record.exc_info)
            record.exc_text = redact_text(written)
            if record.exc_text != written:  # a handler that formats the exception itself would show it
                record.exc_info = None
        return True


_NO_SECRETS: Final = _NoSecrets()


def safe_logger(name: str) -> logging.Logger:
    """Return the logger of a name; what is logged through it is free of secrets, tracebacks included.

    Examples
    --------
    >>> safe_logger("noetic_nb").name
    'noetic_nb'
    """
    logger = logging.getLogger(name)
    logger.addFilter(_NO_SECRETS)  # once only: adding the same filter again does nothing
    return logger
