"""The constructors of records list their fields, so that completion and help show them."""

import inspect

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from pydantic import BaseModel

import noetic_nb as nn
from noetic_nb.memory._budget import ProjectionPolicy
from noetic_nb.runtime._config.config import AgentConfig
from noetic_nb.runtime._durability.checkpoints import Checkpoints
from noetic_nb.steering import SteeringRule
from noetic_nb.steps import _records as records
from noetic_nb.steps._loops import Any_, MaxCost, MaxSteps
from noetic_nb.steps._records import RetryPolicy

KINDS = [
    records.RunStep, records.LLMStep, records.ToolStep, records.BranchStep, records.ForkStep, records.SpawnStep,
    records.LoopStep, records.Route, RetryPolicy, AgentConfig, Checkpoints, ProjectionPolicy, MaxSteps, MaxCost, Any_,
]  # fmt: skip


@pytest.mark.parametrize("kind", [*KINDS, nn.ModelParams, nn.Limits, SteeringRule])
def test_the_signature_of_a_record_lists_its_fields(kind: type[BaseModel]) -> None:
    def parameters() -> list[tuple[str, bool]]:
        return [(one.name, one.default is one.empty) for one in inspect.signature(kind).parameters.values()]

    fields = [(name, field.is_required()) for name, field in kind.model_fields.items()]
    assert parameters() == fields
    kind.model_rebuild(force=True)  # pydantic sets a signature of its own here

    assert parameters() == fields


def test_the_most_used_constructor_completes() -> None:
    shell = InteractiveShell()
    shell.run_cell("import noetic_nb as nn")

    with provisionalcompleter():
        found = [one.text for one in shell.Completer.completions("nn.AgentConfig(force", 20)]

    assert found == ["force_atomic_recall="]
