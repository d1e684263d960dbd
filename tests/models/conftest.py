"""Fixtures of the model clients: an endpoint on loopback, and clients of it that never really wait."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from noetic_nb.models import OpenAIModel
from tests.models.endpoint import Endpoint, running

KEY = "key-of-no-known-shape-42"


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
