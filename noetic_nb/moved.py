"""Names that a package offered in version 0.1, and where they are found now. Kept for one version, then removed."""

from __future__ import annotations

from typing import Final

__all__ = ["MOVED"]

MOVED: Final[dict[str, dict[str, str]]] = {
    "noetic_nb": {
        "ExecutionContext": "noetic_nb.memory.ExecutionContext",
        "ItemValidationError": "noetic_nb.errors.ItemValidationError",
        "LayerStack": "noetic_nb.memory.LayerStack",
        "ScopedStorage": "noetic_nb.storage.ScopedStorage",
        "StorageAdapter": "noetic_nb.storage.StorageAdapter",
    },
    "noetic_nb.items": {
        "DEFAULT_REGISTRY": "noetic_nb.items.registry.DEFAULT_REGISTRY",
        "FrozenDict": "noetic_nb.items.frozen.FrozenDict",
        "ItemView": "noetic_nb.items.log.ItemView",
        "compact_json": "noetic_nb.items.json_text.compact_json",
        "content_tokens": "noetic_nb.items.build.content_tokens",
        "input_texts": "noetic_nb.items.build.input_texts",
        "output_texts": "noetic_nb.items.build.output_texts",
        "unresolved_positions": "noetic_nb.items.build.unresolved_positions",
    },
    "noetic_nb.layers": {
        "Grader": "noetic_nb.layers.regulator_layer.Grader",
        "RegulatedReply": "noetic_nb.layers.regulator_layer.RegulatedReply",
        "deep_merge": "noetic_nb.layers.working.deep_merge",
    },
    "noetic_nb.memory": {
        "CallModel": "noetic_nb.memory.execution_context.CallModel",
        "DEFAULT_TIMEOUTS_MS": "noetic_nb.memory.layer.DEFAULT_TIMEOUTS_MS",
        "ExecutionOutcome": "noetic_nb.memory.params.ExecutionOutcome",
        "FAILED_GUIDANCE": "noetic_nb.memory.enforcement.FAILED_GUIDANCE",
        "HookFailure": "noetic_nb.memory.params.HookFailure",
        "HookModelRequest": "noetic_nb.memory.execution_context.HookModelRequest",
        "HookTimeout": "noetic_nb.memory.hook_timeout.HookTimeout",
        "LayerAllocation": "noetic_nb.memory.budget.LayerAllocation",
        "LayerData": "noetic_nb.memory.layer_functions.LayerData",
        "LayerFunction": "noetic_nb.memory.layer_functions.LayerFunction",
        "ModelOutcome": "noetic_nb.memory.params.ModelOutcome",
        "ProjectedHistory": "noetic_nb.memory.projection.ProjectedHistory",
        "RecallEntry": "noetic_nb.memory.recall.RecallEntry",
        "project_tail": "noetic_nb.memory.projection.project_tail",
    },
    "noetic_nb.models": {
        "FailureReason": "noetic_nb.models.model_errors.FailureReason",
        "FaultKind": "noetic_nb.models.script.FaultKind",
        "Line": "noetic_nb.models.scripted.Line",
        "NO_USAGE": "noetic_nb.models.client.NO_USAGE",
        "Script": "noetic_nb.models.scripted.Script",
    },
    "noetic_nb.runs": {
        "Events": "noetic_nb.runs.run.Events",
        "Recordable": "noetic_nb.runs.recording.recorder.Recordable",
        "SCHEMA_VERSION": "noetic_nb.runs.events.event_codec.SCHEMA_VERSION",
        "TurnSummary": "noetic_nb.runs.turns.TurnSummary",
    },
    "noetic_nb.runtime": {
        "ContextMemory": "noetic_nb.runtime.execution.context_memory.ContextMemory",
        "Finding": "noetic_nb.runtime.check.Finding",
        "LayerMemory": "noetic_nb.runtime.threads.memory_view.LayerMemory",
        "OTelExporter": "noetic_nb.interop.OTelExporter",
        "ThreadStatus": "noetic_nb.runtime.threads.thread.ThreadStatus",
    },
    "noetic_nb.steering": {
        "DEFAULT_JUDGE_MODEL": "noetic_nb.steering.rules.rule.DEFAULT_JUDGE_MODEL",
        "RuleSnapshot": "noetic_nb.steering.evaluation.rule_snapshot.RuleSnapshot",
        "Sentence": "noetic_nb.steering.SequenceRule",
    },
    "noetic_nb.steps": {
        "StepMeta": "noetic_nb.steps.loop_snapshot.StepMeta",
        "make_tool": "noetic_nb.steps.function_tools.make_tool",
        "wire_name": "noetic_nb.steps.tools.wire_name",
    },
    "noetic_nb.storage": {
        "Versioned": "noetic_nb.storage.sqlite.Versioned",
        "escape_segment": "noetic_nb.storage.adapter.escape_segment",
        "get_many": "noetic_nb.storage.adapter.get_many",
        "layer_prefix": "noetic_nb.storage.adapter.layer_prefix",
        "write_together": "noetic_nb.storage.adapter.write_together",
    },
}
