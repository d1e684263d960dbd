"""Logs of Inspect: a run for each sample, its outcome from the first score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from noetic_nb.errors import NoeticConfigError
from noetic_nb.interop._formats.inspect_events import Story
from noetic_nb.interop._formats.inspect_messages import params_of
from noetic_nb.interop._formats.sources import Document, refused
from noetic_nb.items._messages.message import Child, shown, time_ms
from noetic_nb.runs import Run
from noetic_nb.runs._conversation import conversation_events
from noetic_nb.runs._run import run_of_settled

FORMATS: Final = ("inspect",)
# What is read of a sample; the rest of it is listed.
_READ: Final = frozenset(
    [
        *("id", "epoch", "uuid", "messages", "output", "scores", "events", "events_data", "attachments"),
        *("started_at", "completed_at"),
    ]
)


def looks_like(document: Document) -> bool:
    """Tell whether a document is a log: JSON with a plan and samples, an archive, or an ``EvalLog``."""
    data = document.data
    if data is None:
        return document.path is not None and document.path.suffix == ".eval"
    if isinstance(data, Mapping):
        return isinstance(data.get("eval"), Mapping) and "task" in data["eval"] and "version" in data
    return type(data).__name__ in ("EvalLog", "EvalSample")


def read(document: Document, format: str | None = None) -> Iterator[Callable[[], Run]]:
    """Yield a reader for each sample; raises `NoeticError` ``invalid_run_file`` if it is no log.

    An archive where Inspect is not installed raises `NoeticConfigError` ``MISSING_PACKAGE``.
    """
    data = document.data
    if data is None:
        yield from _archive(document)
        return
    if not isinstance(data, Mapping) and hasattr(data, "model_dump"):
        is_sample = type(data).__name__ == "EvalSample"
        data = data.model_dump(mode="json", exclude_none=True)
        data = {"eval": {}, "samples": [data]} if is_sample else data
    about, samples = (data.get(key) for key in ("eval", "samples")) if isinstance(data, Mapping) else (None, None)
    if not isinstance(about, Mapping) or not isinstance(samples, list | tuple):
        what = "it is a log without samples" if isinstance(about, Mapping) else "it is no log of Inspect"
        raise refused(document, what)
    for place, sample in enumerate(samples):
        yield partial(_run, document, sample, about, place)


def _archive(document: Document) -> Iterator[Callable[[], Run]]:
    try:
        from inspect_ai.log import read_eval_log, read_eval_log_samples
    except ImportError:
        what = "Archives of Inspect need the package inspect-ai."
        hint = "pip install inspect-ai, or write the log as JSON: inspect log convert --to json."
        raise NoeticConfigError("MISSING_PACKAGE", what, given=str(document.path), hint=hint) from None
    path = str(document.path)
    try:
        about = read_eval_log(path, header_only=True).eval.model_dump(mode="json", exclude_none=True)
        # One after the other: a log of thousands of samples is never in memory as a whole.
        samples = read_eval_log_samples(path, all_samples_required=False, resolve_attachments=True)
        place = 0
        for place, sample in enumerate(samples):
            yield partial(_run, document, sample.model_dump(mode="json", exclude_none=True), about, place)
    except (OSError, ValueError, KeyError, RuntimeError, NotImplementedError, EOFError) as error:
        raise refused(
            document, f"it is no whole log of Inspect ({type(error).__name__}: {str(error)[:200]})"
        ) from error
    except Exception as error:  # a damaged archive raises what the unpacking package likes to
        if type(error).__name__ not in ("BadZipFile", "error", "IncompleteReadError", "ValidationError"):
            raise
        raise refused(document, f"it is a damaged archive ({str(error)[:200]})") from error


def _run(document: Document, sample: Any, about: Mapping[str, Any], place: int) -> Run:
    if not isinstance(sample, Mapping) or not isinstance(sample.get("messages"), list):
        raise refused(document, "a sample holds no messages", index=place)
    kept = sample.get("attachments")
    texts: Mapping[str, Any] = kept if isinstance(kept, Mapping) else {}
    unmapped: list[dict[str, Any]] = []
    story = Story(sample, texts, unmapped)
    talk = story.talk()
    if talk and not isinstance(talk[0], Child):
        talk[0].t_ms = time_ms(sample.get("started_at"))
    scores = sample.get("scores")
    scores = scores if isinstance(scores, Mapping) else {}
    values = [score.get("value") if isinstance(score, Mapping) else score for score in scores.values()]
    meta = {
        "source": "inspect",
        "suite": about.get("task"),
        "model": about.get("model"),
        "task_id": sample.get("id"),
        "trial": sample.get("epoch"),
        "outcome": _outcome(values[0]) if values else None,
        "scores": dict(zip(scores, values, strict=True)),
        "params": {**params_of(about.get("model_generate_config")), **story.params} or None,
    }
    rest = [
        {"place": str(key), "what": "no place in a run", "value": shown(value)}
        for key, value in sample.items()
        if key not in _READ and value not in (None, [], {}, "")
    ]
    return run_of_settled(None, *conversation_events(talk, meta=meta, unmapped=[*unmapped, *rest]))


def _outcome(value: Any) -> bool | None:
    """Return the meaning of a score: Inspect's letters, a truth, or 0 and 1; anything else is left to the caller."""
    if isinstance(value, str):
        return {"C": True, "I": False, "N": False}.get(value)
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else None
