"""The rule applied to text and data: secrets are replaced, and their words remembered."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from noetic_nb.redact import _secret_names as names

# Longer than any issued credential: a web token takes up to 8 kB, a private key of 8192 bits 6.4 kB.
MARGIN: Final = 16_384
"""The number of characters that are read after the shown part of a text."""

# Enough for readers; hostile data is deeper than the interpreter can recurse.
_MAX_CLIPPED_DEPTH: Final = 40
_SHORTEST_TEXT: Final = 8
# A replacement may join two neighbours that only then look like a secret.
_ROUNDS: Final = 4
_TOKEN_WORDS: Final = re.compile(r"[^\W_]+")
_WORD_LISTS: Final = frozenset({"drift_tokens", "task_tokens", "driftTokens", "taskTokens"})
_WORD_TEXTS: Final = frozenset({"cluster", "topic_cluster", "topicCluster", "pattern_name", "patternName"})
_SCHEMA_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_SCHEMA_KEYS: Final = frozenset({"$ref", "anyOf", "allOf", "oneOf"})
_SCHEMA_VALUES: Final = frozenset({"default", "const", "enum", "example", "examples"})


def _is_schema(value: Any) -> bool:
    """Tell whether a value is a description of an argument, such as a JSON Schema, and not the argument."""
    if not isinstance(value, Mapping):
        return False
    kind = value.get("type")
    return (isinstance(kind, str) and kind in _SCHEMA_TYPES) or any(key in value for key in _SCHEMA_KEYS)


def _name_in(value: Mapping[Any, Any]) -> str | None:
    """Return the secret's name beside its value in a mapping, as in ``{"name": "DB_PASSWORD", "value": ...}``."""
    found = None
    if "call_id" in value or "callId" in value:  # a call of a tool with a name like a secret's
        return None
    for key, inner in value.items():
        if (
            isinstance(key, str)
            and isinstance(inner, str)
            and key.lower() in names.NAME_KEYS
            and names.is_secret_name(inner)
        ):
            found = inner
    return found


def _is_plain(value: Any) -> bool:
    """Tell whether a value is a text or a number, possibly in OTLP's wrapping."""
    if isinstance(value, Mapping) and len(value) == 1:
        value = next(iter(value.values()))
    return isinstance(value, str | bytes | int | float)


# Imported with the first text that is searched: compiling the patterns takes a tenth of the import time.
def _spans_of(text: str) -> list[names.Span]:
    from noetic_nb.redact._levels import spans_of

    return spans_of(text)


def _in_pair(name: str, value: str) -> bool:
    from noetic_nb.redact._places import in_pair

    return in_pair(name, value)


# A live view shows the same keys, names and states with every update. Of long texts only beginnings recur: a shortened
# text is in several views, each as HTML and as text. The key is the whole text that is read.
_short_spans: Final = lru_cache(maxsize=4_096)(_spans_of)
_SHORT_TEXT: Final = 48
_head_spans: Final = lru_cache(maxsize=32)(_spans_of)


class Redaction:
    """The rule applied to several files, tables or views in turn; it remembers the words of the secrets it has found.

    A word list made from a text, such as in a regulator's decision, splits a secret into harmless-looking pieces. They
    are hidden if the text was seen before.

    Parameters
    ----------
    placeholder : callable, optional
        Returns the replacement of a secret; ``[redacted]`` by default, and always of that form.
    remembered : int
        The number of characters of lines without signs of a secret that are remembered, and not examined again: the
        records of one source repeat each other.

    Examples
    --------
    >>> rule = Redaction()
    >>> rule.data({"query": "use AKIAIOSFODNN7EXAMPLE"})
    {'query': 'use [redacted]'}
    >>> rule.data({"drift_tokens": ["akiaiosfodnn7example", "use"]})
    {'drift_tokens': ['[redacted]', 'use']}
    """

    def __init__(self, placeholder: names.Placeholder | None = None, *, remembered: int = 0) -> None:
        self._placeholder = placeholder
        self._remembered = self._room = remembered
        self._known: set[str] = set()
        self._words: set[str] = set()

    def _hidden(self, secret: str) -> str:
        if len(self._words) < 100_000:  # a limit for hostile runs; an ordinary run has a few dozen
            self._words.update(_TOKEN_WORDS.findall(secret[:10_000].lower()))
        return names.REDACTED if self._placeholder is None else self._placeholder(secret)

    def text(self, text: str) -> str:
        """Return text without its secrets."""
        length = len(text)
        if length < _SHORTEST_TEXT or (length <= _SHORT_TEXT and not _short_spans(text)):
            return text
        remembers = self._remembered and length > _SHORT_TEXT
        if remembers and self.are_plain((text,)):
            return text
        for _ in range(_ROUNDS):
            spans = _short_spans(text) if len(text) <= _SHORT_TEXT else _spans_of(text)
            if not spans:
                if remembers:
                    self._remember([text])
                return text
            remembers = False
            pieces = []
            done = 0
            for start, end, secret, quote in spans:
                pieces += [text[done:start], quote, self._hidden(secret), quote]
                done = end
            text = "".join([*pieces, text[done:]])
        return text

    def are_plain(self, texts: Iterable[str]) -> bool:
        r"""Tell whether no line of some texts has signs of a secret, so that none would be changed; results are cached.

        Examples
        --------
        >>> Redaction().are_plain(["hello", "key: value"]), Redaction().are_plain(["hello", "two\nlines"])
        (False, True)
        """
        known = self._known
        unseen = [text for text in texts if text not in known]
        new = [line for text in unseen for line in text.split("\n") if line not in known]
        if new:
            from noetic_nb.redact._levels import may_hold

            if may_hold(new):
                return False
        if self._remembered:
            self._remember(new)
            self._remember(unseen)  # also as a whole, so that its lines need no lookup
        return True

    def _remember(self, clean: list[str]) -> None:
        size = sum(map(len, clean))
        if size > self._remembered:
            return
        if size > self._room:
            self._known.clear()
            self._room = self._remembered
        self._room -= size
        self._known.update(clean)

    def head(self, text: str, length: int) -> str:
        """Return the first `length` characters of a text without its secrets; `MARGIN` more are read."""
        if len(text) <= length + MARGIN:
            return self.text(text)
        text = text[: length + MARGIN]
        for _ in range(_ROUNDS):
            spans = _head_spans(text)
            if not spans:
                break
            pieces = []
            done, shift, kept = 0, 0, length
            for start, end, secret, quote in spans:
                hidden = f"{quote}{self._hidden(secret)}{quote}"
                pieces += [text[done:start], hidden]
                done = end
                # A placeholder is shorter than the secret, and later text must not move into view: a secret that is cut
                # off at the end of the read part is not recognised.
                if end <= kept:
                    shift += len(hidden) - (end - start)
                elif start < kept:
                    shift, kept = start + shift + len(hidden) - end, end
            text = "".join([*pieces, text[done:]])
            length = kept + shift
        return text[:length]

    def data(self, value: Any) -> Any:
        """Return JSON-like data without its secrets."""
        made: list[Any] | dict[Any, Any]
        # No recursion: external data may be nested deeper than the interpreter can recurse.
        work: list[tuple[Any, Any, Any, bool]] = []
        if type(value) is dict:
            made = self._mapping(value, False, work)
            if not work:  # flat, as most arguments are
                return made
            top: list[Any] = [made]
            # The results by container, so that a container that holds itself is read once. The original is kept, so
            # that its id is not reused.
            known: dict[tuple[int, bool], tuple[Any, Any]] = {(id(value), False): (value, made)}
        else:
            top, known = [None], {}
            work.append((value, top, 0, False))
        tuples: list[tuple[Any, Any]] = []
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
                parent[place] = made = self._tokens(value) or self._beside(value)
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
        for parent, place in reversed(tuples):  # inner ones first, while the outer ones are still lists
            parent[place] = tuple(parent[place])
        return top[0]

    def _mapping(
        self, value: Mapping[Any, Any], schema: bool, work: list[tuple[Any, Any, Any, bool]]
    ) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        named = _name_in(value)
        later: list[tuple[Any, Any, Any, bool]] = []
        for key, inner in value.items():
            shown, hide = key, schema and key in _SCHEMA_VALUES
            if isinstance(key, str):
                shown, number = self.text(key), 1
                while shown in made:
                    number += 1
                    shown = f"{self.text(key)} {number}"
                if key in _WORD_LISTS and isinstance(inner, list | tuple):
                    words = [self._word(word) for word in inner]
                    made[shown] = tuple(words) if isinstance(inner, tuple) else words
                    continue
                if key in _WORD_TEXTS and isinstance(inner, str) and self._words:
                    inner = _TOKEN_WORDS.sub(lambda match: self._word(match[0]), inner)
                hide = hide or (self._hides(key, inner) and not (key == "token" and "logprob" in value))
                if named is not None and not hide and key.lower() in names.VALUE_KEYS and _is_plain(inner):
                    hide = self._hides(named, inner)
            if type(inner) is str and not hide and not later:  # secrets are found in their order
                made[shown] = self.text(inner)
            else:
                made[shown] = None
                later.append((inner, made, shown, hide))
        work.extend(reversed(later))  # in reverse, for the same order
        return made

    @staticmethod
    def _hides(key: str, value: Any) -> bool:
        if value is None or value == "":
            return False
        word = names.secret_word(key)
        if word is None:
            return False
        if isinstance(value, bool | int | float) and word not in names.ALWAYS:
            return not isinstance(value, bool) and abs(value) >= names.SMALLEST_NUMBER
        return True

    def _beside(self, value: list[Any] | tuple[Any, ...]) -> list[Any]:
        """Return the elements of a list, without secrets that follow their names: pairs, options, columns."""
        made = list(value)
        if len(made) == 2 and all(isinstance(each, str | bytes) for each in made):
            name, inner = (each.decode("latin-1") if isinstance(each, bytes) else each for each in made)
            if _in_pair(name, inner):
                made[1] = (
                    self._whole(inner) if isinstance(made[1], str) else self._whole(inner).encode("latin-1", "replace")
                )
                return made
        for at in range(1, len(made)):
            option, inner = made[at - 1], made[at]
            if isinstance(option, str) and option[:1] == "-" and isinstance(inner, str):
                from noetic_nb.redact._places import beside_option

                start = beside_option(option, inner)
                if start is not None:
                    made[at] = inner[:start] + self._whole(inner[start:])
        head = made[0] if made else None
        if len(made) > 1 and isinstance(head, str) and all(isinstance(each, str) for each in made):
            self._commanded(made)
        if (
            len(made) > 1
            and isinstance(head, list | tuple)
            and len(head) > 1
            and all(isinstance(name, str) for name in head)
        ):
            places = [at for at, name in enumerate(head) if names.is_secret_name(name)]
            if places and not _in_pair(head[0], head[1]):
                made[1:] = [self._row(row, places, head) for row in made[1:]]
        return made

    def _commanded(self, words: list[str]) -> None:
        from noetic_nb.redact._sentences import commanded

        place, spans = 0, list(commanded(" ".join(words)))
        for at, word in enumerate(words):
            for span in spans:
                if place <= span.start < place + len(word):
                    words[at] = word[: span.start - place] + self._whole(word[span.start - place :])
            place += len(word) + 1

    def _row(self, row: Any, places: list[int], head: list[Any] | tuple[Any, ...]) -> Any:
        if not isinstance(row, list | tuple) or len(row) != len(head):
            return row
        cells = list(row)
        for at in places:
            if isinstance(cells[at], str) and _in_pair(head[at], cells[at]):
                cells[at] = self._whole(cells[at])
        return type(row)(cells) if type(row) in (list, tuple) else cells

    def _whole(self, value: Any) -> str:
        if isinstance(value, str) and names.PLACEHOLDER.fullmatch(value):
            return value
        return self._hidden(value if isinstance(value, str) else str(value))

    def _word(self, word: Any) -> Any:
        if not isinstance(word, str) or names.PLACEHOLDER.fullmatch(word):
            return word
        # Also if the text was not seen: no natural word mixes twenty letters and digits.
        if len(word) >= 20 and any(map(str.isdigit, word)) and any(map(str.isalpha, word)):
            return names.REDACTED
        # Most runs have no secret, and a long run has a hundred thousand words.
        if self._words and not self._words.isdisjoint(_TOKEN_WORDS.findall(word.lower())):
            return names.REDACTED
        return self.text(word)

    def _tokens(self, value: list[Any] | tuple[Any, ...]) -> list[Any] | None:
        """Return a list of (token, log-probability) without the tokens of a secret; None for another kind of list."""
        if not value or not all(
            isinstance(pair, list | tuple) and len(pair) > 1 and isinstance(pair[0], str) and isinstance(pair[1], float)
            for pair in value
        ):
            return None
        spans = _spans_of("".join(pair[0] for pair in value))
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
    r"""Replace text that looks like a credential.

    Parameters
    ----------
    text : str
        Any text; JSON, and JSON inside JSON, is searched as well.

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
    """Return JSON-like data with every secret replaced; the value itself is not changed.

    Parameters
    ----------
    value : object
        Mappings, lists, tuples, text and scalars, nested.

    Examples
    --------
    >>> redact({"api_key": "k", "note": "plain", "usage": {"input_tokens": 3}})
    {'api_key': '[redacted]', 'note': 'plain', 'usage': {'input_tokens': 3}}
    """
    return redact_text(value) if isinstance(value, str) else Redaction().data(value)


def redact_head(text: str, length: int) -> str:
    """Return the first `length` characters of a text without its secrets, in time independent of the rest.

    A slightly longer text is returned whole.

    Examples
    --------
    >>> len(redact_head("a" * 10_000_000, 80))
    80
    """
    return Redaction().head(text, length)


def clip_data(value: Any, length: int) -> tuple[Any, bool]:
    """Return the beginning of JSON-like data, about `length` characters of text, and whether anything was left out.

    Long texts in it are redacted; `redact` does the rest, in time independent of the omitted part.

    Examples
    --------
    >>> clip_data({"ids": list(range(100_000))}, 4)
    ({'ids': [0, 1, 2, 3, '…']}, True)
    """
    left = length
    is_cut = False

    def cut(value: Any, depth: int) -> Any:
        nonlocal left, is_cut
        if isinstance(value, str):
            most = max(left, 0)
            left -= len(value)
            if len(value) <= most + MARGIN:
                return value
            is_cut = True
            return f"{redact_head(value, most)}…"
        left -= 1
        if isinstance(value, int) and value.bit_length() > 256:  # its digits may be more than Python writes
            is_cut = True
            return f"a number of {value.bit_length()} bits"
        if not isinstance(value, Mapping | list | tuple):
            return value
        if depth >= _MAX_CLIPPED_DEPTH:
            is_cut = True
            return "…"
        made: list[Any] | dict[Any, Any] = {} if isinstance(value, Mapping) else []
        left += 1
        for inner in value.items() if isinstance(value, Mapping) else value:
            if left <= 0:
                is_cut = True
                if isinstance(made, dict):
                    made["…"] = "…"
                else:
                    made.append("…")
                break
            if isinstance(made, dict):
                key, inner = inner
                made[cut(key, depth) if isinstance(key, str) else key] = cut(inner, depth + 1)
            else:
                made.append(cut(inner, depth + 1))
        return made

    return cut(value, 0), is_cut


class _NoSecrets(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redact_text(record.getMessage()), ()
        if record.exc_info and not record.exc_text:
            written = logging.Formatter().formatException(record.exc_info)
            record.exc_text = redact_text(written)
            if record.exc_text != written:  # a handler that formats the exception itself would show the secret
                record.exc_info = None
        return True


_NO_SECRETS: Final = _NoSecrets()


def safe_logger(name: str) -> logging.Logger:
    """Return the logger with a name; its records and tracebacks are redacted.

    Examples
    --------
    >>> safe_logger("noetic_nb").name
    'noetic_nb'
    """
    logger = logging.getLogger(name)
    logger.addFilter(_NO_SECRETS)  # idempotent: adding the same filter again has no effect
    return logger
