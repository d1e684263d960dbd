"""Propose where to look first in a failed run, from evidence in the run, without a model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Final, NamedTuple

from noetic_nb.lab._checks import check_run
from noetic_nb.lab._failing.steps import Evidence, Step, Thread, leaves, names_in, records, threads_of
from noetic_nb.lab._recorded_calls import RecordedCall, calls_of, schemas_of
from noetic_nb.lab._rule_backtest import Trials
from noetic_nb.memory._steering_decision import SteeringAction
from noetic_nb.memory.params import BeforeToolCallParams
from noetic_nb.redact import redact_text
from noetic_nb.runs import Run

_OBJECTS: Final = re.compile(
    r"^\s*no\b|\b(?:only wanted|didn['’]t (?:want|ask)|don['’]t want|not what|wrong|mistake|instead of|rather not|prefer not"
    r"|not the (?:whole|entire)|undo|revert|take (?:it|that) back)\b",
    re.IGNORECASE,
)
_REFUSES: Final = re.compile(
    r"\b(?:cannot|can['’]?t|unable|unfortunately|not possible|already|no longer)\b", re.IGNORECASE
)
_STOPS: Final = re.compile(
    r"###\s*[A-Z-]+\s*###|\b(?:bye|goodbye|thanks|thank you|that['’]s all|that is all|all set)\b", re.IGNORECASE
)
_WANTS: Final = re.compile(
    r"\b(?:go ahead|proceed|finali[sz]e|please (?:do|make|process|cancel|return|exchange|change|update|book|pay))\b",
    re.IGNORECASE,
)
_CHANGES: Final = re.compile(
    r"\b(?:might as well|chang\w* my mind|never ?mind|on second thought"
    r"|(?:do ?n['’]t|no longer) (?:need|want) .{0,40}\bany ?more)\b",
    re.IGNORECASE,
)
_OFTEN: Final = 3
_STATES: Final = 5


def in_the_way(thread: Thread) -> Iterator[Evidence]:
    """Yield writes that the user objected to and the agent could not undo, and writes that made a later call fail."""
    done: list[Step] = []
    was_done: set[int] = set()
    for at, step in enumerate(thread.steps):
        if step.kind == "call" and step.writes and step.result is not None:
            if not step.failed:
                done.append(step)
                was_done.add(step.item)
                continue
            about = {other.item: other for name in step.names for other in thread.calls_about[name]}
            for other in (about[item] for item in sorted(about, reverse=True) if item in was_done):
                if changed := _changed(thread, other, step.names, step.result.text):
                    said = f"It changed {changed}, and then {step.name} failed: {step.result.text:.100}"
                    yield Evidence(other, "in the way of a later call", said)
                    break
        elif step.kind == "user" and done and _OBJECTS.search(step.text):
            answer = next((other for other in thread.steps[at + 1 :] if other.kind != "result"), None)
            if answer is not None and answer.kind == "text" and _REFUSES.search(answer.text):
                yield Evidence(
                    done[-1], "the user objects", f"{step.text!r:.100}, and it cannot be undone: {answer.text!r:.80}"
                )


def _changed(thread: Thread, write: Step, names: frozenset[str], error: str) -> str:
    """Return the changed field of a write about one of these names, if the error mentions it."""
    if write.result is None:
        return ""
    for name in sorted(names & write.result.names):
        known = thread.having.get(name, ())
        after = [record for item, record in known if item == write.result.item]
        # The newest states before the write, result by result.
        before = [record for item, record in known if item < write.item][::-1][:_STATES]
        for record, old in product(after, before):
            for key, value in record.items():
                was = old.get(key, value)
                if isinstance(value, str) and isinstance(was, str) and was != value:
                    words = re.findall(r"[a-z]{4,}", f"{was} {value}".lower())
                    if any(word in error.lower() for word in words):
                        return f"{key} from {was!r} to {value!r}"
    return ""


def not_recovered(thread: Thread) -> Iterator[Evidence]:
    """Yield failed writes that no later call repaired."""
    for at, step in enumerate(thread.calls):
        if not step.failed or not step.writes or step.result is None:
            continue
        wanted = step.names
        later = [
            other for other in thread.calls[at + 1 :] if other.writes and other.result is not None and not other.failed
        ]
        if not any(len(wanted & other.names) * 2 > len(wanted) for other in later):
            yield Evidence(
                step,
                "an error ignored",
                f"{step.name} failed, and no later call did the same: {step.result.text:.100}",
            )


def repeated(thread: Thread) -> Iterator[Evidence]:
    """Yield the second of several equal calls with equal results, without a user message between them."""
    seen: dict[tuple[str, str, str], list[Step]] = {}
    for step in thread.steps:
        if step.kind == "user":
            seen.clear()
        elif step.kind == "call" and step.result is not None:
            key = step.name, json.dumps(step.args, sort_keys=True, default=str), step.result.text
            same = seen.setdefault(key, [])
            same.append(step)
            if len(same) == _OFTEN or (step.failed and len(same) > 1):
                yield Evidence(
                    same[1],
                    "a repeated call",
                    f"{step.name} was called {len(same)} times with the same arguments and result.",
                )


def not_read(thread: Thread) -> Iterator[Evidence]:
    """Yield writes about an object that no earlier result showed."""
    for step in thread.calls:
        if step.writes and step.result is not None:
            known = thread.results_with
            unread = {name for name in step.names if name not in known or known[name][0].item > step.item}
            if unread and unread == step.names:
                named = ", ".join(sorted(unread)[:3])
                yield Evidence(
                    step, "a write before a read", f"{step.name} is about {named}, which no result before it shows."
                )


def unanswered(thread: Thread) -> Iterator[Evidence]:
    """Yield the user's last text if no reply follows, although it asks for an action or is not a farewell."""
    last = thread.steps[-1] if thread.steps else None
    if last is None or last.kind != "user" or not thread.before(last, "text", "call"):
        return
    if _WANTS.search(last.text) or not _STOPS.search(last.text):
        yield Evidence(last, "no answer", f"The recording ends with it: {last.text!r:.100}")


def changes_of_wish(thread: Thread) -> Iterator[Evidence]:
    """Yield texts in which the user takes back an earlier wish, if a write follows."""
    first = next((step.item for step in thread.steps if step.kind == "user"), 0)
    for step in thread.steps:
        acted_on = any(call.item > step.item and call.writes and not call.failed for call in thread.calls)
        if acted_on and step.kind == "user" and step.item > first and _CHANGES.search(step.text):
            yield Evidence(step, "the user changes the wish", f"{step.text!r:.120}")


_SENTENCE: Final = re.compile(r"(?:[^.!?\n\\]|[.!?](?=\w)|\\(?!n))+")
_COUNTED: Final = re.compile(
    r"\b(?:there (?:are|is)|we have|you have|i found|i see|found|total of)\b[^.!?:\n]{0,30}?"
    r"\b(\d{1,4})((?: [a-z][\w-]*){0,2} [a-z][\w-]*s\b)",
    re.IGNORECASE,
)
_DENIED: Final = re.compile(
    r"\b(?:(?:does|do|did|is|are|has|have)(?: not|n['’]t)(?: currently| yet)? (?:have|contain|include)"
    r"|(?:has|have) no|there (?:is|are) no)\b((?: (?!because|that|which|in|on|for|at|so|to|from|until)[\w-]+){1,4})",
    re.IGNORECASE,
)
_GIVEN: Final = re.compile(r"(.{3,100}) (?:is|are|was)\b:?\W*([#\w-]*\d[\w-]*)\W*$")
_FURTHER: Final = re.compile(r"\b(?:other|another|more|further|additional)\b", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\d+\.\d+")
_LEAST: Final = 3  # records that are worth counting
_LONG_WORD: Final = 4


def _words(text: str) -> set[str]:
    return {word.removesuffix("s") for word in re.findall(r"[a-z]+", text.lower()) if len(word) >= _LONG_WORD}


def contradictions(thread: Thread) -> Iterator[Evidence]:
    """Yield the texts and calls of a thread that contradict an earlier result."""
    for step in thread.steps:
        if step.kind == "text":
            yield from _miscounted(thread, step)
            yield from _denied(thread, step)
            yield from _of_another(thread, step)
        elif step.kind == "call" and not step.failed:
            yield from _ruled_out(thread, step)


def _miscounted(thread: Thread, step: Step) -> Iterator[Evidence]:
    """Find a count that matches neither a listed result nor its entries with a common value."""
    since = max([other.item for other in thread.before(step, "user", "text")], default=-1)
    calls = [call for call in thread.calls if call.result is not None and since < call.result.item < step.item]
    listed = [
        (call, thread.data[call.result.item]) for call in calls if call.result and call.result.item in thread.data
    ]
    groups = [group for _, data in listed for group in _groups(data)]
    if not groups:
        return
    told = " ".join([f"{call.name} {call.result.text}" for call, _ in listed if call.result]).lower()
    right = {count for group in groups for count in {len(group), *_flags(group), *_shared(group)}}
    for match in _COUNTED.finditer(step.text):
        number = int(match[1])
        is_of_them = any(word in told for word in _words(match[2]))
        if is_of_them and number not in right and number > min(map(max, map(_shared, groups))):
            sizes = ", ".join(map(str, sorted(right)[-3:]))
            yield Evidence(
                step, "contradicts a result", f"It says {match[0].strip()!r}; the result has {sizes} such entries."
            )
            return


def _groups(data: Any) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the collections of a result: lists of records, and mappings to records."""
    waiting = [data]
    while waiting:
        found = waiting.pop()
        inner = list(found.values()) if isinstance(found, Mapping) else found if isinstance(found, list) else []
        if len(inner) >= _LEAST and all(isinstance(each, Mapping) for each in inner):
            yield inner
        waiting += [each for each in inner if isinstance(each, Mapping | list)]


def _flags(group: list[Mapping[str, Any]]) -> Iterator[int]:
    for key in {key for each in group for key, value in each.items() if isinstance(value, bool)}:
        holds = sum(each.get(key) is True for each in group)
        yield from (holds, len(group) - holds)


def _shared(group: list[Mapping[str, Any]]) -> set[int]:
    """Return the number of entries with a common value, for each common value."""
    counts: dict[str, int] = {}
    for each in group:
        for value in {str(leaf).lower() for leaf in leaves(each) if not isinstance(leaf, bool)}:
            counts[value] = counts.get(value, 0) + 1
    return {count for count in counts.values() if count < len(group)} or {0}


def _denied(thread: Thread, step: Step) -> Iterator[Evidence]:
    """Find a denial of something that a result contains."""
    for match in _SENTENCE.finditer(step.text):
        denial = _DENIED.search(match[0])
        about = names_in(match[0])
        # A denial of other or further ones does not contradict those in a result.
        wanted = _words(denial[1]) if denial is not None and not _FURTHER.search(denial[1]) else set()
        if denial is None or not about or not wanted:
            continue
        calls = {call.item: call for name in about for call in thread.calls_about.get(name, ())}
        for _, call in sorted(calls.items()):
            shown = call.result is not None and call.result.item < step.item
            data = thread.data.get(call.result.item) if shown and call.result is not None else None
            for record in records(data):
                for key, value in record.items():
                    is_there = value not in (None, "", [], {}, False, 0) and not about & names_in(value)
                    if is_there and wanted & _words(key.replace("_", " ")):
                        yield Evidence(
                            step,
                            "contradicts a result",
                            f"It denies {denial[1].strip()!r}; the result has {key} = {value!r:.60}.",
                        )
                        return


def _of_another(thread: Thread, step: Step) -> Iterator[Evidence]:
    """Find a value stated about a name when no result with the value mentions the name, but one mentions another."""
    asked = {word for other in thread.before(step, "user")[-2:] for word in _words(other.text)}
    for match in _SENTENCE.finditer(step.text):
        given = _GIVEN.search(match[0])
        about = asked & _words(given[1]) if given else set()
        for name in names_in(given[2]) if given and about else ():
            # Texts may also be about names that the user gave or a call used.
            if any(name in other.names for other in thread.before(step, "user")) or name in thread.calls_about:
                continue
            sources = [other for other in thread.results_with.get(name, ()) if other.item < step.item]
            told = {word for other in sources for word in _words(other.text)}
            others = {
                word for other in thread.steps if sources and other.kind == "result" for word in _words(other.text)
            }
            missing = (about - told) & others
            if sources and missing:
                named = ", ".join(sorted(missing))
                yield Evidence(
                    step, "contradicts a result", f"It gives {name!r} for {named}; the result it is from mentions none."
                )
                return


def _ruled_out(thread: Thread, step: Step) -> Iterator[Evidence]:
    """Find an argument whose entry a result marks as false, such as not available, while other entries are true."""
    values: set[Any] = set(step.names)
    values |= {float(found) for leaf in leaves(step.args) if isinstance(leaf, str) for found in _NUMBER.findall(leaf)}
    values |= {float(leaf) for leaf in leaves(step.args) if isinstance(leaf, float)}
    for value in sorted(values, key=str):
        having = [record for item, record in thread.having.get(value, ()) if item < step.item]
        flags = [{key for key, flag in record.items() if flag is False} for record in having]
        shared = set.intersection(*flags) if flags else set()
        varied = [key for key in sorted(shared) if thread.truths.get(key, step.item) < step.item]
        if varied and (step.writes or isinstance(value, float)):
            yield Evidence(step, "contradicts a result", f"It uses {value!r}, of an entry whose {varied[0]} is false.")
            return


_READINGS: Final = (contradictions, in_the_way, not_recovered, repeated, not_read, unanswered)
_WEAK: Final = "the user changes the wish"
"""As frequent in good runs: used only if there is no other evidence."""


class FirstFailure(NamedTuple):
    """The step of a run at which to look first.

    Attributes
    ----------
    turn : int
        The turn of the step.
    item : int
        Its index in the thread's log.
    call : int or None
        Its index among the run's tool calls, as in ``to_frame("tools")``; None for a text.
    reason : str
        The kind of evidence: ``"a rule broken"``, ``"an argument of no origin"``, ``"an argument that does not fit"``,
        ``"contradicts a result"``, ``"in the way of a later call"``, ``"the user objects"``, ``"an error ignored"``,
        ``"a repeated call"``, ``"a write before a read"``, ``"no answer"``, ``"an error"``; if there is none of these,
        ``"the user changes the wish"``.
    evidence : str
        A description of the evidence; secrets redacted.
    thread_id : str
        The thread of the step.
    """

    turn: int
    item: int
    call: int | None
    reason: str
    evidence: str
    thread_id: str

    def __repr__(self) -> str:
        return redact_text(f"FirstFailure({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})")


def first_failure(run: Run, *, rules: Any = None, tools: Any = None) -> FirstFailure | None:
    """Propose the first failing step of a run, from evidence in the run, without a model.

    Parameters
    ----------
    run : Run
        A failed run; its outcome is not checked.
    rules : RuleBook or iterable of rules, optional
        Calls that they would deny are evidence. Judges are not called.
    tools : iterable of tools, or mapping of names to schemas, optional
        Calls of other tools, and arguments that do not fit, are evidence.

    Returns
    -------
    FirstFailure or None
        The earliest step with evidence: a call, a text of the agent, or a text of the user. None if there is no
        evidence, which says nothing about the run.

    Raises
    ------
    NoeticConfigError
        ``INVALID_RUN``, ``INVALID_TOOL``, and the errors of rules.

    Notes
    -----
    Rewards, outcomes and expected actions are not read. The first word of a tool's name decides whether it changes
    state. For the accuracy see docs/studies/first_failure.md.

    Examples
    --------
    >>> import json
    >>> import noetic_nb as nn
    >>> call = {"id": "c1", "type": "function", "function": {"name": "list_sizes", "arguments": "{}"}}
    >>> sizes = [{"size": size, "available": size != "S"} for size in ("S", "M", "L", "XL")]
    >>> run = nn.import_run([
    ...     {"role": "user", "content": "How many sizes are there?"},
    ...     {"role": "assistant", "tool_calls": [call]},
    ...     {"role": "tool", "tool_call_id": "c1", "content": json.dumps(sizes)},
    ...     {"role": "assistant", "content": "There are 5 sizes."},
    ... ])
    >>> found = first_failure(run)
    >>> found.item, found.reason
    (3, 'contradicts a result')
    """
    check_run(run, "first_failure reads one run.")
    recorded = {call.seq: call for call in calls_of(run) if isinstance(call.params, BeforeToolCallParams)}
    denied = _denied_calls(run, rules)
    schemas = None if tools is None else schemas_of(tools)
    found = [
        FirstFailure(
            each.step.turn, each.step.item, each.step.place, each.reason, redact_text(each.text), thread.thread_id
        )
        for thread in threads_of(run)
        for each in _evidence(run, thread, recorded, denied, schemas)
    ]
    places = {thread_id: place for place, thread_id in enumerate(run.threads)}
    return min(found, key=lambda one: (one.reason == _WEAK, places[one.thread_id], one.item), default=None)


def _denied_calls(run: Run, rules: Any) -> dict[int, str]:
    """Return the reasons for which rules would deny calls, by event index."""
    if rules is None:
        return {}
    trials = Trials(run)
    return {
        call.seq: f"{', '.join(result.decision.rule_ids)}: {result.decision.guidance or 'denied'}"
        for call, result in zip(trials.calls, trials.results(rules), strict=True)
        if result.decision.action is SteeringAction.DENY and call.point == "before_tool_call"
    }


def _evidence(
    run: Run,
    thread: Thread,
    recorded: Mapping[int, RecordedCall],
    denied: Mapping[int, str],
    schemas: Mapping[str, Any] | None,
) -> Iterator[Evidence]:
    for step in thread.calls:
        if step.seq in denied:
            yield Evidence(step, "a rule broken", denied[step.seq])
        if schemas is not None and (misfit := _misfit(step.name, step.args, schemas)):
            yield Evidence(step, "an argument that does not fit", misfit)
        call = recorded.get(step.seq)
        if step.writes and not step.failed and call is not None and isinstance(call.params, BeforeToolCallParams):
            params = call.params
            made_up = [
                name
                for name in sorted(step.names)
                if thread.first_said.get(name.strip("#").casefold(), step.item) >= step.item
                and params.origin(name).kind == "model"
            ]
            if made_up:
                yield Evidence(
                    step, "an argument of no origin", f"Nobody wrote {made_up[0]!r} before the call of {step.name}."
                )
    for reading in _READINGS:
        yield from reading(thread)
    yield from changes_of_wish(thread)
    for error in [error for turn in run.turns for error in turn.errors]:
        last = [step for step in thread.steps if step.turn == error.where.turn]
        if error.where.thread_id == thread.thread_id and last:
            yield Evidence(last[-1], "an error", f"The turn ended with it: {error.message}")


def _misfit(name: str, args: Any, schemas: Mapping[str, Any]) -> str:
    if name not in schemas:
        return f"There is no tool {name!r}."
    schema: Mapping[str, Any] = schemas[name] or {}
    names: Iterable[str] = args if isinstance(args, Mapping) else ()
    missing = [key for key in schema.get("required", ()) if key not in names]
    unknown = [key for key in names if key not in schema["properties"]] if "properties" in schema else []
    if schema.get("additionalProperties"):
        unknown = []
    said = [f"{name} lacks {', '.join(missing)}."] if missing else []
    return " ".join([*said, *([f"{name} has no {', '.join(unknown)}."] if unknown else [])])
