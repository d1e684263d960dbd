"""The forms of credentials, as documented by their issuers, and of session cookies."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from noetic_nb.redact._secret_names import PLACEHOLDER, Span


def longest_run(text: str) -> int:
    """Return the length of the longest run of letters and digits."""
    return max(map(len, re.split(r"[^A-Za-z0-9]+", text)))


def is_mixed(text: str) -> bool:
    """Tell whether letters and digits alternate, unlike in a word, number or date."""
    return any(len(run) >= 8 and len(_TURNS.findall(run)) >= 3 for run in _RUNS.findall(text))


def _is_dense(text: str) -> bool:
    """Tell whether a text with dashes is not a chain of words."""
    mixed = any(c.isdigit() for c in text) and any(c.isupper() for c in text) and len(text) >= 24
    return mixed or longest_run(text) >= 16


def _is_basic(text: str) -> bool:
    try:
        return b":" in base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (ValueError, binascii.Error):
        return False


def _is_token(text: str) -> bool:
    return any(c.isdigit() for c in text) or bool(re.search(r"[a-z][A-Z]", text)) or text.endswith("=")


def _is_jwt(text: str) -> bool:
    return len(text) >= 24 and text.count(".") >= 1 and len(text.split(".")[0]) >= 10


def _no_filler(text: str) -> bool:
    return not re.fullmatch(r"[*x.…]+|[<{$%].*", text, re.S)


_AROUND: Final = ' \t\r\n\v\f=:"'
_RUNS: Final = re.compile(r"[A-Za-z0-9]+")
_TURNS: Final = re.compile(r"[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z])")


class _Shape(NamedTuple):
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    holds: Callable[[str], bool]


def _shape(hints: str, pattern: str, holds: Callable[[str], bool] = lambda text: True) -> _Shape:
    return _Shape(tuple(hints.split()), re.compile(pattern), holds)


_B: Final = r"(?<![A-Za-z0-9])"
_TELEGRAM: Final = _shape("", r":(?<=[0-9]{8}:)([A-Za-z0-9_\-]{34,36})(?![A-Za-z0-9_\-])", _is_token)
# Each form is documented by its issuer, and too long to match prose. A pattern is only searched if the text contains
# one of its hints, which keeps ordinary text cheap. Quantifiers are possessive or end a pattern, so that near misses do
# not backtrack.
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
    _TELEGRAM,
    # Also consumes runs that are not tokens, so that "eyJeyJ…" is read once.
    _shape("eyJ", _B + r"(eyJ[A-Za-z0-9_\-]*+(?:\.[A-Za-z0-9_\-]++)*+\.?)", _is_jwt),
    _shape("earer BEARER", r"(?i:\bbearer)[ \t]++([A-Za-z0-9._~+/\-]{16,}+=*+)", _is_token),
    _shape("asic BASIC", r"(?i:\bbasic)[ \t]++([A-Za-z0-9+/]{8,}+={0,2})", _is_basic),
    _shape("://", r"://([A-Za-z0-9_\-]{16,256})@", is_mixed),  # a token in the place of the user
    _shape("://", r"://[^\s/?#@:\"'<>\\]{0,128}:([^\s/\"'<>\\]{1,256})@", _no_filler),
)
# The prefixes of these issuers' keys, from their documentation.
_PREFIXES: Final = (
    "xapp- dop_v1_ doo_v1_ dor_v1_ shpat_ shpca_ shppa_ shpss_ hvs. hvb. hvr. glc_ glsa_ dp.pt. dp.st. NRAK- PMAK- pscale_tkn_ "
    "pscale_pw_ lin_api_ ntn_ ATATT3 sntrys_ sntryu_ r8_ pplx- pcsk_ tvly- lsv2_ dckr_pat_ figd_ sbp_ rubygems_ nvapi- CCIPAT_ "
    "nfp_ CFPAT- sqp_ xkeysib- sq0atp- EAAAE AGE-SECRET-KEY- access-production- FLWSECK- tfp_ tskey- pul- duffel_live_ sgp_ dapi"
)


def _finders(hints: Iterable[str], patterns: Iterable[str] = ()) -> tuple[re.Pattern[str], ...]:
    """Return what finds any of the hints: each pattern begins with a character that is rare, and looks back from there."""
    found: dict[str, list[str]] = {}
    for hint in hints:
        at = min(range(len(hint)), key=lambda at: (hint[at].isalnum(), not hint[at].isupper(), hint[at].islower()))
        before = f"(?<={re.escape(hint[: at + 1])})" if at else ""
        found.setdefault(re.escape(hint[at]), []).append(before + re.escape(hint[at + 1 :]))
    for pattern in patterns:
        sign = pattern[: 1 + pattern.startswith("\\")]
        found.setdefault(sign, []).append(pattern.removeprefix(sign))
    return tuple([re.compile(f"{sign}(?:{'|'.join(rest)})") for sign, rest in found.items()])


@cache
def _vendors() -> tuple[tuple[_Shape, ...], tuple[re.Pattern[str], ...]]:
    """Return the forms of further vendors' credentials, and the patterns that find a hint of any of them."""
    shapes = [
        _shape(prefix, _B + f"({re.escape(prefix)}[A-Za-z0-9_.\\-]{{16,}})", _is_vendor) for prefix in _PREFIXES.split()
    ]
    kept = json.loads((Path(__file__).with_name("data") / "vendor_shapes.json").read_text(encoding="utf-8"))
    shapes += [_Shape((), re.compile(each["pattern"]), _is_vendor) for each in kept["shapes"]]
    return tuple(shapes), _finders(_PREFIXES.split(), [each["hint"] for each in kept["shapes"]])


def _is_vendor(text: str) -> bool:
    return is_mixed(text) or _is_dense(text)


_FINDERS: Final = (
    *_finders([hint for shape in _SHAPES for hint in shape.hints if hint != "://"]),
    re.compile(r":(?:(?<=[0-9]{8}:)|//[^\s/?#@:\"'<>\\]{0,256}(?::[^\s/\"'<>\\]{1,256})?@)"),
)
_AWS_SECRET: Final = re.compile(r"(?<![A-Za-z0-9/+])([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])")
_AWS_BESIDE: Final = 200  # characters: the next line, field or column
_COOKIES: Final = re.compile(r"(?i)\bcookie[\"']?\s{0,3}:\s{0,3}[\"']?([^\r\n\"'\\<>]++)")
_COOKIE: Final = re.compile(r"[\w.\-]{1,64}=[^\s;,]{6,}")
_SESSION: Final = re.compile(
    r"(?i)(?<![A-Za-z0-9])(?:session|session_?id|sid|connect\.sid|jsessionid|phpsessid)=([^\s;,&\"'<>\\]{6,})"
)
_SESSION_NAME: Final = re.compile(
    r"=(?<=[nd]=)(?:(?<=session=)|(?<=session_id=)|(?<=sessionid=)|(?<=sessid=)|(?<=sid=))"
)


# The value may begin in the next line.
_COOKIE_NAME: Final = re.compile(r"cookie[\"']?[^\S\n]{0,3}(?::|\n|\Z)")


def is_hinted(text: str) -> bool:
    """Tell whether a text has a hint of an issuer's credential; no hint spans lines."""
    return any(pattern.search(text) for pattern in (*_FINDERS, *_vendors()[1]))


def may_hold_cookies(text: str, lower: str) -> bool:
    """Tell whether a text, also given in lower case, may hold cookies, or name a session, in one of its lines."""
    # When case is ignored, these three are ASCII letters.
    if not text.isascii() and ("ſ" in text or "ı" in text or "İ" in text):
        return True
    return _SESSION_NAME.search(lower) is not None or ("cookie" in lower and _COOKIE_NAME.search(lower) is not None)


def issued(text: str) -> Iterator[Span]:
    """Find texts in the form of an issuer's credential."""
    if not is_hinted(text):
        return
    yield from _of_vendors(text)
    for shape in _SHAPES:
        if shape is not _TELEGRAM and not any(hint in text for hint in shape.hints):
            continue
        for match in shape.pattern.finditer(text):
            secret = match[1]
            if not shape.holds(secret) or PLACEHOLDER.fullmatch(secret):
                continue
            start = match.start(1)
            if shape is _TELEGRAM:
                while start > 1 and text[start - 2].isdigit():  # a preceding number belongs to the token
                    start -= 1
                start -= 1
                secret = text[start : match.end(1)]
            yield Span(start, match.end(1), secret)
            if "AKIA" in shape.hints:
                window = max(0, match.start() - _AWS_BESIDE), match.end() + _AWS_BESIDE
                for beside in _AWS_SECRET.finditer(text, *window):
                    if _is_token(beside[1]) and not beside[1].isdigit():
                        yield Span(*beside.span(1), beside[1])


def _of_vendors(text: str) -> Iterator[Span]:
    shapes, finders = _vendors()
    if not any(pattern.search(text) for pattern in finders):
        return
    for shape in shapes:
        if shape.hints and shape.hints[0] not in text:
            continue
        for match in shape.pattern.finditer(text):
            # Some patterns match the context; our own keys are the whole group.
            start, end = match.span(1 if shape.hints else 0)
            while not shape.hints and text[start] in _AROUND:
                start += 1
            while not shape.hints and text[end - 1] in _AROUND:
                end -= 1
            before, after = text[start - 1 : start], text[end : end + 1]
            if not shape.hints and ((before.isascii() and before.isalnum()) or (after.isascii() and after.isalnum())):
                continue  # a part of a longer word
            if shape.holds(text[start:end]):
                yield Span(start, end, text[start:end])


def cookies(text: str, lower: str) -> Iterator[Span]:
    if not may_hold_cookies(text, lower):
        return
    if "cookie" in lower:
        for match in _COOKIES.finditer(text):
            if _COOKIE.search(match[1]) and not PLACEHOLDER.search(match[1]):
                yield Span(*match.span(1), match[1])
    if "=" in text and ("sess" in lower or "sid=" in lower):
        for match in _SESSION.finditer(text):
            if _is_token(match[1]) and not PLACEHOLDER.search(match[1]):
                yield Span(*match.span(1), match[1])
