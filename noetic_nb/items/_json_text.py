"""Compact JSON text, letter for letter as ECMAScript writes it, because token estimates count its characters.

Python's ``json`` agrees except for two things: the form of fractional numbers and lone surrogates. Both are rare, so
the fast path is ``json`` itself and only data that needs it is written by hand.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from json import encoder as json_encoder
from typing import Any, Final

from pydantic_core import from_json, to_json

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def encoding(encoder: json.JSONEncoder) -> Callable[[Any], str]:
    """Return a function that encodes as a compact `json.JSONEncoder` does, which makes a C encoder for every value."""
    make: Any = getattr(json_encoder, "c_make_encoder", None)
    if make is None:  # an interpreter without it
        return encoder.encode
    pieces = make(None, encoder.default, json_encoder.encode_basestring, None, ":", ",", False, False, False)

    def encode(value: Any) -> str:
        try:
            return "".join(pieces(value, 0))
        except RecursionError:
            return encoder.encode(value)  # tells whether the data is a circle

    return encode


_ENCODE: Final = encoding(_ENCODER)
_LONE_SURROGATE: Final = re.compile("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")
# A fractional number in JSON text has a point between digits, or an exponent with its sign; text may look like it too, so a match
# is only a hint. Each begins with a character that is quick to find.
_POINT: Final = re.compile(r"\.(?<=[0-9]\.)[0-9]")
_EXPONENT: Final = re.compile(r"e[+-](?<=[0-9]e[+-])")
# Where ECMAScript switches to exponents (Number::toString, ECMA-262 section 6.1.6.1.20).
_MAX_PLAIN: Final = 1e21
_MIN_PLAIN: Final = 1e-6


def number_text(value: float) -> str:
    """Return a finite number as ECMAScript prints it: the shortest form, no ``.0``, exponents without padding."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        raise ValueError(f"JSON has no number {value!r}.")
    size = abs(value)
    if size < _MAX_PLAIN and value == int(value):
        return str(int(value))
    text = repr(value)
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    mantissa = mantissa.removesuffix(".0")
    if size >= _MAX_PLAIN or size < _MIN_PLAIN:
        return f"{mantissa}e{int(exponent):+d}"
    # Python writes exponents below 1e-4 already, ECMAScript only below 1e-6.
    sign, digits = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
    return f"{sign}0.{'0' * (-int(exponent) - 1)}{digits.replace('.', '')}"


def _may_have_float(text: str) -> bool:
    # Most text has no such sign, which is quicker still to see.
    if "." in text and _POINT.search(text):
        return True
    return ("e-" in text or "e+" in text) and _EXPONENT.search(text) is not None


def _has_float(value: Any) -> bool:
    if type(value) is float:
        return True
    if isinstance(value, dict):
        return any(_has_float(inner) for inner in value.values())
    if isinstance(value, list | tuple):
        return any(_has_float(inner) for inner in value)
    return False


def _written(value: Any) -> str:
    if type(value) is float:
        return number_text(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_ENCODE(key)}:{_written(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_written, value)) + "]"
    return _ENCODE(value)


def parsed_json(text: str | bytes) -> Any:
    """Parse JSON text, as `json.loads` does, in half the time.

    What pydantic's parser takes it reads in the same way; the rest (lone surrogates, UTF-16, data nested deep, and what is no
    JSON) is left to `json`. Names are shared between records, texts are not: they may be secret.
    Raises `ValueError` or `RecursionError` if it cannot be read.
    """
    try:
        return from_json(text, cache_strings="keys")
    except ValueError:
        return json.loads(text)


def plain_text(value: Any) -> str:
    """Return plain data as compact JSON in a third of the time of `json`, which gets the values that pydantic refuses."""
    try:
        return to_json(value).decode()
    except ValueError:
        return _ENCODE(value)


def _is_whole(text: str) -> bool:
    """Tell whether no surrogate stands in a text, which its encoder knows in a hundredth of the time of a search."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def compact_json(value: Any) -> str:
    """Return JSON data as ``JSON.stringify`` writes it; raises `ValueError` or `TypeError` for other data."""
    text = _ENCODE(value)
    if _may_have_float(text) and _has_float(value):
        text = _written(value)
    if not (text.isascii() or _is_whole(text)):
        text = _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
    return text
