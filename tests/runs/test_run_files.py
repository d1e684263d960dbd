"""Run files: loaded runs equal the saved ones, without secrets; damaged files are rejected with the place of the damage."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import noetic_nb as nn
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.events import (
    ErrorRaised,
    ItemsAppended,
    LayerStateChanged,
    QualityGiven,
    RegulatorDecided,
    RunEvent,
    ToolCalled,
)
from noetic_nb.items import function_call, function_call_output
from noetic_nb.runs import Run, load_run
from noetic_nb.runs._events.event_json import EVENT_TYPES, WireError, dump_event, parse_event
from noetic_nb.steering import deny, parse_rules
from tests.matrix import several
from tests.runs.factories import EVENTS, JSON, conversation, records, where

KEY = "sk-abcdefghijklmnopqrstuvwx"


def made(turns: int = 2) -> Run:
    return Run("r1", meta={"created_ms": 0.0, "config": {"name": "desk"}}, events=conversation(turns))


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def written(path: Path, lines: list[Any]) -> Path:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n"
    path.write_bytes(gzip.compress(text.encode(errors="surrogateescape")))
    return path


def nested(depth: int) -> Any:
    data: Any = 1
    for _ in range(depth):
        data = [data]
    return data


def refused(path: Path, **options: int) -> NoeticError:
    with pytest.raises(NoeticError) as raised:
        load_run(path, **options)
    assert raised.value.kind == "invalid_run_file"
    assert raised.value.path == str(path)
    assert raised.value.hint
    return raised.value


def test_a_saved_run_comes_back_equal(tmp_path: Path) -> None:
    run = made()

    path = run.save(tmp_path / "run.jsonl.gz")

    assert load_run(path) == run
    assert load_run(path).turns == run.turns
    assert load_run(path).log("t1") == run.log("t1")


@pytest.mark.matrix
@pytest.mark.parametrize("cls", EVENT_TYPES)
def test_every_event_kind_survives_the_file(cls: type[Any], tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"

    @settings(max_examples=several(8, 100))
    @given(records(cls))
    def survives(event: RunEvent) -> None:
        run = Run("r1", events=[event])
        run.save(path)
        assert load_run(path) == run

    survives()


@given(EVENTS)
def test_reading_what_was_dumped_gives_the_same_event(event: RunEvent) -> None:
    kept = Run("r1", events=[event]).events[0]

    assert parse_event(json.loads(json.dumps(dump_event(kept)))) == kept


def test_a_decision_of_an_older_run_has_no_thresholds() -> None:
    decided = next(event for event in made().events if isinstance(event, RegulatorDecided))
    data = json.loads(json.dumps(dump_event(replace(decided, thresholds={"cost_cap": {"usd": 0.5}}))))

    assert parse_event(data).thresholds == {"cost_cap": {"usd": 0.5}}
    with pytest.raises(WireError, match="thresholds"):
        parse_event({**data, "thresholds": []})
    del data["thresholds"]
    assert parse_event(data).thresholds == {}


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    first = made().save(tmp_path / "a.jsonl.gz").read_bytes()
    second = load_run(tmp_path / "a.jsonl.gz").save(tmp_path / "b.jsonl.gz").read_bytes()

    assert first == second
    assert first[3:8] == bytes(5)  # no name and no time, which would vary


def test_a_seeded_run_is_the_same_file_to_the_byte_in_every_process(tmp_path: Path) -> None:
    folders = []
    for seed in ("0", "4711"):
        folder = tmp_path / seed
        folder.mkdir()
        command = [sys.executable, "-m", "tests.runs.seeded_run", str(folder)]
        subprocess.run(command, check=True, timeout=60, env={**os.environ, "PYTHONHASHSEED": seed})
        folders.append(folder)

    first, *others = [{path.name: path.read_bytes() for path in sorted(folder.iterdir())} for folder in folders]
    header, *_ = lines_of(folders[0] / "saved")

    assert all(other == first for other in others)
    assert header["meta"]["created_ms"] == 5_000


def pay(amount: float) -> str:
    """Pay."""
    return f"paid {amount}"


def test_a_bundle_keeps_configuration_rules_and_notes_and_gives_them_again(tmp_path: Path) -> None:
    rules = nn.RuleBook()

    @rules.rule(on="before_tool_call", tools=["pay"])
    def small(call: Any) -> Any:
        return deny("Too much.") if call.tool_args["amount"] > 9 else None

    rules.at_most(3, "pay")
    config = nn.AgentConfig(
        name="desk",
        step=nn.react(model="m", tools=[pay], instructions=f"The key is {KEY}."),
        memory=[rules, nn.working_memory()],
        params={"limit": 3},
    )
    run = nn.record(nn.AgentHarness(config, model=nn.ScriptedModel([])))
    rules.at_most(5, "look")  # the rules at the time of saving
    run.notes = f"Tried with {KEY}."

    path = run.save(tmp_path / "run.jsonl.gz", bundle=True)
    loaded = load_run(path)
    again = load_run(loaded.save(tmp_path / "again.jsonl.gz", bundle=True))

    assert KEY not in gzip.decompress(path.read_bytes()).decode()
    assert loaded.bundle is not None
    assert loaded.notes == loaded.bundle["notes"] == "Tried with [redacted]."
    registry = nn.Registry({"small": small}, tools=[pay], layers=config.memory)
    config_again = nn.load_config(loaded.bundle["config"], registry)
    assert (config_again.name, dict(config_again.params)) == ("desk", {"limit": 3})
    assert [layer.id for layer in config_again.memory] == ["steering", "working-memory"]
    text = json.dumps(loaded.bundle["rules"])
    assert [r.id for r in parse_rules(text, format="json", functions={"small": small})] == [r.id for r in rules]
    assert "Too much." in loaded.bundle["sources"]["small"]
    assert again.bundle == loaded.bundle
    assert Run.load(path) == loaded
    assert load_run(run.save(path)).bundle is None
    assert loaded.copy().bundle == loaded.bundle


def test_what_a_run_was_made_with_is_not_worked_out_for_a_file_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_of: list[object] = []
    monkeypatch.setattr("noetic_nb.runs._computed.bundle_of", lambda *given: made_of.append(given) or {})
    run = nn.record(nn.AgentHarness(nn.AgentConfig(name="desk"), model=nn.ScriptedModel([])))

    run.save(tmp_path / "run.jsonl.gz")
    assert made_of == []
    run.save(tmp_path / "run.jsonl.gz", bundle=True)
    assert len(made_of) == 1


def test_a_bundle_of_a_run_that_nobody_recorded_says_what_is_known(tmp_path: Path) -> None:
    path = made().save(tmp_path / "run.jsonl.gz", bundle=True)

    assert load_run(path).bundle == {"config": {"name": "desk"}, "rules": None, "sources": {}, "notes": ""}
    with pytest.raises(NoeticConfigError, match="INVALID_NOTES"):
        made().notes = 3  # type: ignore[assignment]


def test_the_wire_form_has_a_sorted_header_and_camel_case_events(tmp_path: Path) -> None:
    header, first, *_ = lines_of(made().save(tmp_path / "run.jsonl.gz"))

    assert (header["schema"], header["version"], header["run_id"], header["events"]) == ("noetic_nb/run", 2, "r1", 30)
    assert list(header) == sorted(header)
    assert first["kind"] == "turn_started"
    assert first["where"] == {"threadId": "t1", "executionId": "e1", "turn": 1, "depth": 0}
    assert (first["turnId"], first["tMs"], first["resourceId"]) == ("turn1", 1000.0, "ann")


def test_no_secret_reaches_the_file(tmp_path: Path) -> None:
    arguments = json.dumps({"city": "Ulm", "password": "hunter2hunter2"})
    run = Run(
        "r1",
        meta={"config": {"api_key": "plain-secret", "headers": {"Authorization": "Bearer abcdefghijklmnop"}}},
        events=[
            ToolCalled(where(), 0.0, "pay", "c1", {"password": "hunter2hunter2"}, f"used {KEY}", 1.0, "ok"),
            ItemsAppended(where(), 0.0, 0, (function_call("pay", arguments, "c1", item_id="i"),), "model"),
            ItemsAppended(
                where(),
                0.0,
                1,
                (function_call_output("c1", json.dumps([{"api_key": "plain-secret"}]), item_id="o"),),
                "tool",
            ),
            LayerStateChanged(where(), 0.0, "notes", "store", {"token": {"api_key": "plain-secret"}}),
            ErrorRaised(where(), 0.0, "llm_failed", f"401 for {KEY}"),
        ],
    )

    text = gzip.decompress(run.save(tmp_path / "run.jsonl.gz").read_bytes()).decode()

    for secret in ("hunter2", "plain-secret", "abcdefghijkl"):
        assert secret not in text
    loaded = load_run(tmp_path / "run.jsonl.gz")
    assert json.loads(loaded.log("t1")[0].arguments) == {"city": "Ulm", "password": "[redacted]"}
    assert run.select(ToolCalled)[0].args == {"password": "hunter2hunter2"}


def test_saving_again_after_loading_changes_nothing_more(tmp_path: Path) -> None:
    run = Run("r1", events=[ErrorRaised(where(), 0.0, "llm_failed", f"401 for {KEY}")])
    once = load_run(run.save(tmp_path / "a.jsonl.gz"))

    twice = load_run(once.save(tmp_path / "b.jsonl.gz"))

    assert twice == once
    assert twice != run


def test_a_value_json_lacks_does_not_prevent_saving(tmp_path: Path) -> None:
    state = {"cap": float("inf"), "seen": {1}, 7: "seven"}
    run = Run("r1", events=[LayerStateChanged(where(), 0.0, "notes", "store", state)])

    loaded = load_run(run.save(tmp_path / "run.jsonl.gz"))

    assert loaded == run
    assert loaded.select(LayerStateChanged)[0].state["cap"] == float("inf")


def test_an_item_of_an_unregistered_extension_is_loaded_as_data(tmp_path: Path) -> None:
    path = made(1).save(tmp_path / "run.jsonl.gz")
    lines = lines_of(path)
    lines[2]["items"][0]["type"] = "acme:note"

    run = load_run(written(path, lines))

    assert run.log("t1")[0]["type"] == "acme:note"


def test_a_failed_save_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = made().save(tmp_path / "run.jsonl.gz")
    before = path.read_bytes()
    broken = Run("r1", events=[replace(QualityGiven(where(), 1.0, 0.5, "x"), quality=object())])  # type: ignore[arg-type]

    with pytest.raises(NoeticError, match="Event 0"):
        broken.save(path)

    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.jsonl.gz"]


def test_an_event_that_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    run = Run("r1", events=[replace(conversation(1)[0], start=0.5)])  # type: ignore[type-var]

    with pytest.raises(NoeticError, match=r"Event 0 \(turn_started\).*`start` must be a whole number"):
        run.save(tmp_path / "run.jsonl.gz")


def test_a_folder_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NoeticError, match="folder exists") as raised:
        made().save(tmp_path / "nowhere" / "run.jsonl.gz")

    assert raised.value.kind == "storage_failed"


@pytest.mark.skipif(os.name == "nt", reason="symbolic links need rights there")
def test_saving_through_a_link_keeps_the_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.jsonl.gz", tmp_path / "link.jsonl.gz"
    made(1).save(real)
    link.symlink_to(real)

    made(2).save(link)

    assert link.is_symlink()
    assert len(load_run(real).turns) == 2


# Damaged files


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "no such file" in str(refused(tmp_path / "none.jsonl.gz"))


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path).line is None


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(b"")

    assert "empty" in str(refused(path))


def test_what_is_not_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    path.write_text('{"schema": "noetic_nb/run"}\n')

    assert "not a gzip file" in str(refused(path))


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = made(1).save(tmp_path / "run.jsonl.gz")
    whole = path.read_bytes()

    for size in range(0, len(whole), 37):
        path.write_bytes(whole[:size])
        assert path.name in str(refused(path))


def test_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    path = made(1).save(tmp_path / "run.jsonl.gz")
    whole = path.read_bytes()

    for place in range(10, len(whole), 41):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        assert path.name in str(refused(path))


def test_a_missing_line_is_refused(tmp_path: Path) -> None:
    path = made(1).save(tmp_path / "run.jsonl.gz")

    error = refused(written(path, lines_of(path)[:-1]))

    assert "14 events, but its header announces 15" in str(error)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda header: {**header, "schema": "other"}, "not the header"),
        (lambda header: ["schema"], "not the header"),
        (lambda header: {**header, "version": 3}, "Upgrade"),
        (lambda header: {**header, "version": "1"}, "version"),
        (lambda header: {**header, "version": True}, "version"),
        (lambda header: {**header, "version": 0}, "version"),
        (lambda header: {**header, "run_id": None}, "run_id"),
        (lambda header: {**header, "meta": []}, "meta"),
        (lambda header: {**header, "events": "many"}, "events"),
        (lambda header: "{not json", "not JSON"),
        (lambda header: {**header, "bundle": 3}, "bundle"),
        (lambda header: {**header, "meta": {"created_ms": 10**400}}, "larger than any number here"),
        (lambda header: {**header, "meta": {"a": nested(900)}}, "nested too deep"),
        (lambda header: {**header, "bundle": {"a": nested(900)}}, "nested too deep"),
    ],
)
def test_a_bad_header_is_refused_at_line_1(change: Callable[[Any], Any], expected: str, tmp_path: Path) -> None:
    path = made(1).save(tmp_path / "run.jsonl.gz")
    lines = lines_of(path)

    error = refused(written(path, [change(lines[0]), *lines[1:]]))

    assert error.line == 1
    assert expected in str(error)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda event: {**event, "kind": "wish_granted"}, "wish_granted"),
        (lambda event: {key: value for key, value in event.items() if key != "kind"}, "kind"),
        (lambda event: {**event, "kind": ["turn_started"]}, "kind"),
        (lambda event: {key: value for key, value in event.items() if key != "turnId"}, "`turnId` is missing"),
        (lambda event: {**event, "turnId": 5}, "`turnId` must be text"),
        (lambda event: {**event, "start": 1.0}, "`start` must be a whole number"),
        (lambda event: {**event, "start": True}, "`start` must be a whole number"),
        (lambda event: {**event, "tMs": "now"}, "`tMs` must be a number"),
        (lambda event: {**event, "where": {**event["where"], "turn": None}}, "`where.turn`"),
        (lambda event: {**event, "where": []}, "`where` must be an object"),
        (lambda event: {**event, "extra": 1}, "`extra` is not a field"),
        (lambda event: {**event, "resourceId": {}}, "`resourceId`"),
        (lambda event: [event], "must be an object"),
        (lambda event: "nonsense", "not JSON"),
        (lambda event: '{"kind": NaN}', "NaN"),
        (lambda event: "[" * 100_000, "nested too deep"),
        (lambda event: json.dumps(event)[:-1] + ', "x": ' + '{"a":' * 700 + "1" + "}" * 700 + "}", "`x`"),
        (lambda event: "9" * 5_000, "not JSON"),
        (lambda event: {**event, "start": 10**400}, "a number of 401 digits is larger than any number here"),
        (lambda event: {**event, "tMs": 10**400}, "larger than any number here"),
        (lambda event: json.dumps(event).replace("1000.0", "1e400"), "1e400 is larger than any number here"),
        (lambda event: json.dumps(event).replace("1000.0", "-Infinity"), "not JSON (-Infinity is not JSON)"),
        (lambda event: json.dumps(event) + "\udcff", "it is not UTF-8"),
        (lambda event: {"batch": {"turn": 0, "at": [[1, 1]]}}, "`kind` must be one of"),
    ],
)
def test_a_bad_event_is_refused_at_its_line(change: Callable[[Any], Any], expected: str, tmp_path: Path) -> None:
    path = made(1).save(tmp_path / "run.jsonl.gz")
    lines = lines_of(path)

    error = refused(written(path, [lines[0], change(lines[1]), *lines[2:]]))

    assert error.line == 2
    assert expected in str(error)


@pytest.mark.parametrize(
    ("place", "change", "expected"),
    [
        (2, {"items": [{"role": "user"}]}, "`items[0]` is not an item"),
        (2, {"items": {}}, "`items` must be a list"),
        (2, {"items": ["hi"]}, "`items[0]` must be an item"),
        (2, {"origin": 5}, "`origin` must be text"),
        (4, {"window": [1, 2, 3]}, "`window` must be a list of 2"),
        (4, {"layers": [{"layerId": "x"}]}, "`layers[0].allocated` is missing"),
        (9, {"stops": 1}, "`stops` must be true or false"),
        (9, {"decision": "continue"}, "`decision` must be an object"),
        (9, {"decision": {"$float": "NaN"}}, "`decision` must be an object"),
        (9, {"confidence": {"$float": "much"}}, "`confidence` must be a number"),
    ],
)
def test_a_bad_field_is_named_with_its_place(place: int, change: dict[str, Any], expected: str, tmp_path: Path) -> None:
    path = made(1).save(tmp_path / "run.jsonl.gz")
    lines = lines_of(path)
    lines[place] = {**lines[place], **change}

    error = refused(written(path, lines))

    assert error.line == place + 1
    assert expected in str(error)


def test_a_number_that_no_float_can_hold_is_kept_as_a_description(tmp_path: Path) -> None:
    arguments = {"n": 10**400, "more": [10**5_000], "fine": 10**300}
    run = Run("r1", events=[ToolCalled(where(), 0.0, "add", "c1", arguments, "done", 1.0, "ok")])

    loaded = load_run(run.save(tmp_path / "run.jsonl.gz"))

    assert loaded == run
    args = loaded.to_frame("tools")["args"][0]
    assert (args["n"]["$unserializable"], args["fine"]) == ("a number of 1329 bits", 10**300)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([{"batch": {"turn": 0, "at": [[0, 2]]}}], "holds 0 events, but its header announces 2"),
        ([{"batch": {"turn": 0, "at": [[0]]}}], "its list of events is damaged"),
        ([{"batch": {"turn": 0, "at": [[0, True]]}}], "its list of events is damaged"),
        ([{"batch": {"turn": 0, "at": [[0, 10**11]]}}], "announces too many events"),
        ([{"batch": {"turn": "0", "at": []}}], "`kind`"),
        ([{"batch": 3}], "`kind`"),
        ([{"meta": 3}], "`kind`"),
        ([{"meta": {"a": nested(900)}}], "nested too deep"),
    ],
    ids=str,
)
def test_a_damaged_part_is_refused(lines: list[Any], expected: str, tmp_path: Path) -> None:
    header = lines_of(Run("r1").save(tmp_path / "run.jsonl.gz"))[0]

    assert expected in str(refused(written(tmp_path / "run.jsonl.gz", [header, *lines])))


# A damaged file raises one of the library's errors, whatever the damage.
@given(
    place=st.integers(0, 15),
    key=st.text(max_size=9),
    value=JSON | st.just(10**400) | st.just(nested(150)),
    at=st.floats(0, 1),
)
def test_whatever_is_written_over_a_line_is_read_or_refused(
    place: int, key: str, value: Any, at: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    lines = lines_of(made(1).save(folder / "fuzzed.jsonl.gz"))
    keys = sorted(lines[place])
    lines[place][[*keys, key][int(at * len(keys))]] = value

    problem = None
    try:
        run = load_run(written(folder / "fuzzed.jsonl.gz", lines))
    except NoeticError as error:
        problem = error
    else:
        shown = f"{run!r} {run._repr_html_()} {run.turns}"
        assert shown

    assert problem is None or (problem.kind == "invalid_run_file" and problem.hint)


def test_a_word_that_this_version_does_not_know_is_kept(tmp_path: Path) -> None:
    path = made(1).save(tmp_path / "run.jsonl.gz")
    lines = lines_of(path)
    lines[3]["hook"] = "on_daydream"

    run = load_run(written(path, lines))

    assert list(run.to_frame("spans")["hook"]) == ["on_daydream"]


def test_a_field_with_a_default_may_be_missing(tmp_path: Path) -> None:
    path = made(1).save(tmp_path / "run.jsonl.gz")
    lines = lines_of(path)
    del lines[1]["resourceId"]

    assert load_run(written(path, lines)).turns[0].resource_id is None


def test_a_small_file_with_a_huge_line_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(b"0" * 5_000_000))

    error = refused(path, max_line_bytes=1_000_000)

    assert path.stat().st_size < 10_000
    assert "max_line_bytes" in str(error)


def test_a_small_file_with_very_many_lines_is_refused_unless_allowed(tmp_path: Path) -> None:
    path = made(40).save(tmp_path / "run.jsonl.gz")

    assert "max_bytes" in str(refused(path, max_bytes=10_000))
    assert len(load_run(path, max_bytes=10_000_000).turns) == 40
