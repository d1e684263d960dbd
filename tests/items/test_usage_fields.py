"""Every usage field of the supported packages is read, or listed as ignored with a reason.

Packages that are not installed here are checked in the environment of `make frameworks`; otherwise their recorded fields are.
"""

from __future__ import annotations

import importlib
import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from noetic_nb.items._messages.usage_fields import USAGE, known_usage
from noetic_nb.models import Usage


def fields(model: Any, prefix: str = "") -> Iterator[str]:
    """Yield the paths of all values in a model, lists by the types of their entries."""
    for name, field in model.model_fields.items():
        yield from _inside(field.annotation, f"{prefix}{name}")


def _inside(annotation: Any, path: str) -> Iterator[str]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from fields(annotation, f"{path}.")
    elif get_origin(annotation) is list:
        for entry in _models(get_args(annotation)[0]):
            (kind,) = get_args(entry.model_fields["type"].annotation)
            yield f"{path}[{kind}]"
    elif inner := _models(annotation):
        for model in inner:
            yield from fields(model, f"{path}.")
    else:
        lists = [each for each in get_args(annotation) if get_origin(each) is list]
        yield from (_inside(lists[0], path) if lists else (path,))


def _models(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    is_choice = get_origin(annotation) in (Union, types.UnionType) or hasattr(annotation, "__metadata__")
    return [model for each in get_args(annotation) for model in _models(each)] if is_choice else []


def missing(source: str, found: set[str]) -> set[str]:
    table = USAGE[source]
    return found - {path for paths in table.read.values() for path in paths} - set(table.ignored)


# By source and module: the class with the fields, or for attributes, the part of a name that indicates tokens.
MODELS: Final = {
    ("openai", "openai.types"): "CompletionUsage",
    ("openai-responses", "openai.types.responses"): "ResponseUsage",
    ("anthropic", "anthropic.types"): "Usage",
    ("anthropic", "anthropic.types.beta"): "BetaUsage",
    ("inspect", "inspect_ai.model"): "ModelUsage",
}
ATTRIBUTES: Final = {
    ("genai", "opentelemetry.semconv._incubating.attributes.gen_ai_attributes"): "gen_ai.usage.",
    ("openinference", "openinference.semconv.trace"): "token_count",
}
# As in the packages of the environment of `make frameworks`, for an environment without them.
RECORD: Final = Path(__file__).with_name("usage_fields.json")


def installed(source: str, module: str) -> set[str]:
    """Return the usage fields or attributes of an installed package; raises `ImportError` if it is missing."""
    found = importlib.import_module(module)
    if (source, module) in MODELS:
        return set(fields(getattr(found, MODELS[source, module])))
    held = [found, *[each for each in vars(found).values() if isinstance(each, type)]]
    values = {value for each in held for value in vars(each).values() if isinstance(value, str)}
    return {value for value in values if ATTRIBUTES[source, module] in value}


@pytest.mark.parametrize(("source", "module"), [*MODELS, *ATTRIBUTES])
def test_every_field_of_usage_is_read_or_ignored_with_a_reason(source: str, module: str) -> None:
    try:
        found = installed(source, module)
    except ImportError:
        found = set(json.loads(RECORD.read_text(encoding="utf-8"))[module])

    assert found, "the package names tokens"
    iterations = {path for path in found if path.startswith("iterations[")}
    assert {f"{source} {path}" for path in missing(source, iterations)} <= USAGE.keys()
    assert missing(source, found - iterations) == set()


def test_a_field_that_nobody_names_is_found() -> None:
    class Details(BaseModel):
        cached_tokens: int
        dreamt_tokens: int | None = None

    class Counted(BaseModel):
        prompt_tokens: int
        prompt_tokens_details: Details | None = None

    assert missing("openai", set(fields(Counted))) == {"prompt_tokens_details.dreamt_tokens"}


def test_every_reason_says_something_and_every_name_is_one_of_usage() -> None:
    for source, table in USAGE.items():
        assert set(table.read) == set(Usage._fields), source
        assert all(len(reason) > 5 for reason in table.ignored.values()), source
        assert not {path for paths in table.read.values() for path in paths} & set(table.ignored), source


@pytest.mark.parametrize("value", [None, 3, {}, {"prompt_tokens": "many"}, {"prompt_tokens_details": 3}])
def test_nothing_that_is_counted_is_none(value: Any) -> None:
    assert known_usage(value, "openai") is None


@pytest.mark.parametrize("odd", ["30", -1, 2.5, True, float("nan"), 2**70, {}])
@pytest.mark.parametrize("source", ["anthropic", "inspect"])
def test_a_sum_with_a_part_that_is_no_number_is_not_known(source: str, odd: Any) -> None:
    first, _, last = USAGE[source].read["input_tokens"]

    assert known_usage({first: 10, last: odd, "output_tokens": 4}, source) == {"output_tokens": 4}
    assert known_usage({first: 10, last: None, "output_tokens": 4}, source) == {"input_tokens": 10, "output_tokens": 4}
