"""Secrets without a sign before them: in a sentence, "the passcode is ...", and behind a short option of a command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from noetic_nb.redact._assignments import behind_hints, is_value
from noetic_nb.redact._secret_names import PLACEHOLDER, Span, secret_word
from noetic_nb.redact._shapes import is_mixed

_HINTS: Final = ("pass", "pwd", "secret", "token", "key", "cred", "pin", "otp")
_QUOTED: Final = r"\"(?P<double>[^\"\\\r\n]{1,256}+)\"|'(?P<single>[^'\\\r\n]{1,256}+)'"
_IS: Final = (
    r"(?:(?: (?:for|of|to|on|at)(?: [\w.@'\-]{1,40}+){1,4}?)?[ \t]{1,4}(?:is|was)(?: ?:)?[ \t]{1,4}|[ \t]{1,4})"
)
_TAIL: Final = re.compile(
    rf"[a-z0-9_.\-]{{0,128}}+(?: (?:key|token|code)s?)?[\"'`*]{{0,2}}{_IS}(?=[\"'`]?[^\s\"'`]{{0,128}}[0-9])", re.A
)
_NAME: Final = re.compile(
    r"(?<![\w.\-])(?P<name>(?:[A-Za-z]{2,12}[ \-])?(?!(?i:is|was) )[A-Za-z_][\w.\-]{0,127}+)[\"'`*]{0,2}"
    rf"(?P<is>(?i:{_IS}))\Z",
    re.A,
)
_VALUE: Final = re.compile(rf"{_QUOTED}|`?(?P<bare>[^\s\"'`,;&<>(){{}}\[\]|\\]{{4,256}}+)")
# What is a password also without a sign or a verb: "password Step2" is none.
_STRONG: Final = re.compile(r"(?=.*[a-z])(?=.*[A-Z])|.*[!@#$%^*+~?=]|(?:.*?(?:[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z]))){2}")
# Names that are also words of prose.
_PROSE: Final = frozenset(
    {"pass", "auth", "authorization", "bearer", "cookie", "cookies", "dsn", "webhook", "session id"}
)

_ATTACHED: Final = r"-p(?=[^\s\"']|[\"'][^\s\"',])"
_THEN: Final = r"(?:[ \t]{1,8}|[\"'][ \t]{0,4},[ \t]{0,4}[\"'])"
_LATER: Final = rf"\b[^\n|;&]{{0,200}}?{_THEN}"
_GAP: Final = r"(?:[\"'][ \t]{0,4},[ \t]{0,4}(?=[\"'])|[ \t]{0,8}+)"
# The options that are a password. Behind a blank, -p of mysql and 7z is none.
_COMMAND: Final = re.compile(
    rf"(?<![\w\-])(?:sshpass(?:\.exe)?{_THEN}-p{_GAP}|(?:docker|podman|oc){_THEN}login{_LATER}-p{_GAP}"
    rf"|(?:mysql|mariadb)\w{{0,12}}+(?:-\w{{1,12}}+)?{_LATER}{_ATTACHED}|7z[ar]?{_LATER}{_ATTACHED}"
    rf"|redis-cli{_LATER}-a{_GAP}|ldap[a-z]{{3,12}}+{_LATER}-w{_GAP}|(?:unzip|zip|sqlcmd|mosquitto_\w{{2,4}}){_LATER}-P{_GAP}"
    rf"|smbclient{_LATER}-U{_GAP}[\"']?[^\s%\"']{{1,64}}%|(?i:identified[ \t]by)[ \t](?=[\"']))"
    rf"(?:{_QUOTED}|(?P<bare>[^\s\"']{{1,256}}+))",
    re.A,
)
_COMMANDS: Final = (
    "sshpass",
    "login",
    "mysql",
    "mariadb",
    "7z",
    "redis-cli",
    "ldap",
    "zip",
    "sqlcmd",
    "mosquitto_",
    "smbcl",
)
_NO_PASSWORD: Final = re.compile(r"[*xX.]+|[<{$%].*", re.S)


def may_say(lower: str) -> bool:
    """Tell whether a text, given in lower case, may hold a secret in a sentence or a command."""
    return _may_command(lower) or next(behind_hints(lower, _TAIL, _HINTS), None) is not None


def _may_command(lower: str) -> bool:
    if "identified by" in lower or "identified\tby" in lower:
        return True
    return "-" in lower and any(name in lower for name in _COMMANDS)


def commanded(text: str) -> Iterator[Span]:
    """Find the passwords of command lines behind an option of one letter."""
    if not _may_command(text.lower()):
        return
    for match in _COMMAND.finditer(text):
        group = str(match.lastgroup)
        if not _NO_PASSWORD.fullmatch(match[group]) and not PLACEHOLDER.search(match[group]):
            yield Span(*match.span(group), match[group])


def said(text: str) -> Iterator[Span]:
    """Find the secrets that a sentence tells: behind their name, with a verb or with a blank."""
    # The one letter that becomes two in lower case stands in no name.
    for place in sorted(behind_hints(text.replace("İ", " ").lower(), _TAIL, _HINTS)):
        name, value = _NAME.search(text[max(0, place - 340) : place]), _VALUE.match(text, place)
        if name is None or value is None:
            continue
        word = secret_word(name["name"]) or secret_word(name["name"].rpartition(" ")[2])
        if word is None or word in _PROSE:
            continue
        group = str(value.lastgroup)
        content = value[group] if group != "bare" else value[group].rstrip(".!?:*")
        end = value.start(group) + len(content)
        if PLACEHOLDER.search(content) or not is_value(content, word, text[end : end + 1], quoted=group != "bare"):
            continue
        if name["is"].strip():  # a verb says as much as a colon
            is_told = True
        elif content.isdigit():  # "pin 2000 posters" is an order
            is_told = word != "pin" or name["name"].isupper()
        else:
            is_told = bool(_STRONG.match(content)) if word.startswith(("pass", "pwd")) else is_mixed(content)
        if is_told:
            yield Span(value.start(group), end, content)
