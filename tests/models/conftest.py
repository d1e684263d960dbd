"""Fixtures of the model clients: an endpoint on loopback, and clients of it that never really wait."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from noetic_nb.items import input_message
from noetic_nb.models import ModelRequest, OpenAIModel, StreamingModelClient, StreamPart
from tests.models.endpoint import Endpoint, running

KEY = "key-of-no-known-shape-42"


def ask(*items: Any, **fields: Any) -> ModelRequest:
    """Return a request that says "hi", where it has no other items."""
    return ModelRequest(**{"model": "step-model", "items": items or (input_message("hi"),), **fields})


async def parts_of(model: StreamingModelClient, request: ModelRequest) -> list[StreamPart]:
    """Return all that a model streams."""
    return [part async for part in model.stream(request)]


@pytest.fixture(autouse=True)
def _no_provider_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with running() as served:
        yield served


@pytest.fixture
def waits() -> list[float]:
    """How long the clients would have waited between attempts, in seconds."""
    return []


@pytest.fixture
async def client(endpoint: Endpoint, waits: list[float]) -> AsyncIterator[Callable[..., OpenAIModel]]:
    made: list[OpenAIModel] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    def make(**options: Any) -> OpenAIModel:
        defaults = {
            "model": "m",
            "api_key": KEY,
            "base_url": endpoint.url,
            "sleep": note,
            "seed": 1,
            "timeout_ms": 5_000,
        }
        made.append(OpenAIModel(**{**defaults, **options}))
        return made[-1]

    yield make
    for model in made:
        await model.aclose()
