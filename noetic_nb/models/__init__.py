"""Language models: the contract, a deterministic one for offline work, and any OpenAI-compatible endpoint."""

from noetic_nb.models.base import (
    NO_USAGE,
    ModelClient,
    ModelDelta,
    ModelParams,
    ModelRequest,
    ModelResponse,
    StreamingModelClient,
    StreamPart,
    TokenLogprob,
    ToolSpec,
    Usage,
)

__all__ = [
    "NO_USAGE",
    "ModelClient",
    "ModelDelta",
    "ModelParams",
    "ModelRequest",
    "ModelResponse",
    "StreamPart",
    "StreamingModelClient",
    "TokenLogprob",
    "ToolSpec",
    "Usage",
]
