"""Data of events as lines of JSON hold it, and back; a number that JSON lacks is written as text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from noetic_nb.items._frozen import FrozenDict
from noetic_nb.items._json_copy import MOST_BITS

NON_FINITE: Final = "$float"
_TEXT_OF: Final = {math.inf: "Infinity", -math.inf: "-Infinity"}
_NUMBER_OF: Final = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def _whole(text: str) -> int:
    number = int(text)
    if number.bit_length() > MOST_BITS:
        raise ValueError(f"a number of {len(text)} digits is larger than any number here")
    return number


def _fraction(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):  # Python makes infinity of 1e400, which is not what was written
        raise ValueError(f"{text[:40]} is larger than any number here")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def parse_json(line: bytes) -> Any:
    """Return the data of a line of JSON.

    Raises `ValueError` for what is none, and for a number that no float can hold.
    """
    return json.loads(line, parse_constant=_refuse_constant, parse_float=_fraction, parse_int=_whole)


def to_wire(value: Any) -> Any:
    """Return data as plain JSON data; numbers that JSON lacks are written as ``{"$float": "Infinity"}``."""
    if type(value) is float and not math.isfinite(value):
        return {NON_FINITE: _TEXT_OF.get(value, "NaN")}
    if isinstance(value, Mapping):
        return {key: to_wire(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_wire(inner) for inner in value]
    return value


def from_wire(value: Any) -> Any:
    """Return the frozen data that `to_wire` wrote."""
    if isinstance(value, dict):
        if len(value) == 1 and NON_FINITE in value:
            number = value[NON_FINITE]
            if isinstance(number, str) and number in _NUMBER_OF:
                return _NUMBER_OF[number]
        return FrozenDict({key: from_wire(inner) for key, inner in value.items()})
    if isinstance(value, list):
        return tuple([from_wire(inner) for inner in value])
    return value
