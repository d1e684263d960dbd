"""Every field of usage of the packages is read, or named as ignored with a reason."""

from __future__ import annotations

import importlib
import types
from collections.abc import Iterator
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from noetic_nb.items._messages.usage_fields import USAGE, known_usage
from noetic_nb.models import Usage


def fields(model: Any, prefix: str = "") -> Iterator[str]:
    """Yield the paths of all values in a model, lists by the kinds of their entries."""
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


@pytest.mark.parametrize(
    ("source", "module", "name"),
    [
        ("openai", "openai.types", "CompletionUsage"),
        ("openai-responses", "openai.types.responses", "ResponseUsage"),
        ("anthropic", "anthropic.types", "Usage"),
        ("anthropic", "anthropic.types.beta", "BetaUsage"),
        ("inspect", "inspect_ai.model", "ModelUsage"),
    ],
)
def test_every_field_of_usage_is_read_or_ignored_with_a_reason(source: str, module: str, name: str) -> None:
    package = module.partition(".")[0]
    pytest.importorskip(package, reason=f"the package {package} is not installed")

    found = set(fields(getattr(importlib.import_module(module), name)))

    iterations = {path for path in found if path.startswith("iterations[")}
    assert {f"{source} {path}" for path in missing(source, iterations)} <= USAGE.keys()
    assert missing(source, found - iterations) == set()


@pytest.mark.parametrize(
    ("source", "module", "sign"),
    [
        ("genai", "opentelemetry.semconv._incubating.attributes.gen_ai_attributes", "gen_ai.usage."),
        ("openinference", "openinference.semconv.trace", "token_count"),
    ],
)
def test_every_attribute_of_usage_is_read_or_ignored_with_a_reason(source: str, module: str, sign: str) -> None:
    conventions = pytest.importorskip(module, reason=f"{module} is not installed")
    held = [conventions, *[each for each in vars(conventions).values() if isinstance(each, type)]]

    found = {value for each in held for value in vars(each).values() if isinstance(value, str)}

    named = {value for value in found if sign in value}
    assert named, "the conventions name tokens"
    assert missing(source, named) == set()


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
