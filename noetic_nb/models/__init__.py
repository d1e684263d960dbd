"""Language models: the contract, a deterministic one for offline work, and any OpenAI-compatible endpoint."""

from typing import TYPE_CHECKING

from noetic_nb.lazy import lazily
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
from noetic_nb.models.failures import FailureReason
from noetic_nb.models.script import CallTool, Fault, FaultKind, Reply
from noetic_nb.models.scripted import Line, Script, ScriptedModel

if TYPE_CHECKING:
    from noetic_nb.models.cassette import CassetteModel
    from noetic_nb.models.openai_model import OpenAIModel
    from noetic_nb.models.pricing import Price

__all__ = [
    "NO_USAGE",
    "CallTool",
    "CassetteModel",
    "FailureReason",
    "Fault",
    "FaultKind",
    "Line",
    "ModelClient",
    "ModelDelta",
    "ModelParams",
    "ModelRequest",
    "ModelResponse",
    "OpenAIModel",
    "Price",
    "Reply",
    "Script",
    "ScriptedModel",
    "StreamPart",
    "StreamingModelClient",
    "TokenLogprob",
    "ToolSpec",
    "Usage",
]

__getattr__ = lazily(
    __name__,
    {
        "CassetteModel": "noetic_nb.models.cassette",
        "OpenAIModel": "noetic_nb.models.openai_model",
        "Price": "noetic_nb.models.pricing",
    },
)
