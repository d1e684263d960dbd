"""Writes compact JSON exactly as ECMAScript does, because token estimates count its characters.

Python's ``json`` differs only in fractional numbers and lone surrogates. Both are rare, so only such data is written by
hand. Frozen data is written by ``msgspec``, which is much faster for it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from json import encoder as json_encoder
from typing import Any, Final

from msgspec.json import encode
from pydantic_core import from_json

from noetic_nb.items._frozen import FrozenDict

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def encoding(encoder: json.JSONEncoder) -> Callable[[Any], str]:
    """Return a function equivalent to a compact `json.JSONEncoder`, which would create a C encoder for every value."""
    make: Any = getattr(json_encoder, "c_make_encoder", None)
    if make is None:  # an interpreter without the C encoder
        return encoder.encode
    pieces = make(None, encoder.default, json_encoder.encode_basestring, None, ":", ",", False, False, False)

    def encode(value: Any) -> str:
        try:
            return "".join(pieces(value, 0))
        except RecursionError:
            return encoder.encode(value)  # detects circular data

    return encode


_ENCODE: Final = encoding(_ENCODER)
_LONE_SURROGATE: Final = re.compile("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")
# Limit above which ECMAScript uses exponents (Number::toString, ECMA-262 section 6.1.6.1.20).
_MAX_PLAIN: Final = 1e21
_MIN_PLAIN: Final = 1e-6


def number_text(value: float) -> str:
    """Format a finite number as ECMAScript does: the shortest form, no ``.0``, exponents without padding."""
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
    # Python uses exponents below 1e-4, ECMAScript only below 1e-6.
    sign, digits = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
    return f"{sign}0.{'0' * (-int(exponent) - 1)}{digits.replace('.', '')}"


def _has_float(value: Any) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return type(value) is float
    for inner in value:  # noqa: SIM110  # runs for every item, where a generator takes twice as long
        if type(inner) is not str and _has_float(inner):
            return True
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
    """Parse JSON text as `json.loads` does, but faster.

    Text that pydantic's parser accepts gives the same result; the rest (lone surrogates, UTF-16, deeply nested data,
    invalid JSON) is left to `json`. Keys are shared between records, texts are not, because they may be secret. Raises
    `ValueError` or `RecursionError` if it cannot be parsed.
    """
    try:
        return from_json(text, cache_strings="keys")
    except ValueError:
        return json.loads(text)


def plain_text(value: Any) -> str:
    """Return pure JSON data as compact JSON, faster than `json`, which is used for texts that msgspec rejects."""
    try:
        return encode(value).decode()
    except (TypeError, ValueError):  # a subclass of text, or a lone surrogate
        return _ENCODE(value)


def _is_whole(text: str) -> bool:
    """Tell whether a text has no surrogates; encoding finds them much faster than a search."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def compact_json(value: Any) -> str:
    """Return JSON data as ``JSON.stringify`` writes it; raises `ValueError` or `TypeError` for other data."""
    # msgspec also writes other data, such as sets, which frozen data does not contain.
    text = plain_text(value) if isinstance(value, FrozenDict) else _ENCODE(value)
    if _has_float(value):
        text = _written(value)
    if not (text.isascii() or _is_whole(text)):
        text = _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
    return text
