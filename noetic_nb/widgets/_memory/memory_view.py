"""The live view of layer states over time; with a live harness, states can be edited."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
from collections import OrderedDict
from collections.abc import Coroutine
from typing import Any, Final, Protocol
from uuid import uuid4

import traitlets

from noetic_nb._core.nested_loop import running_loop
from noetic_nb.errors import NoeticConfigError, NoeticError
from noetic_nb.items import thaw
from noetic_nb.items._json_text import compact_json
from noetic_nb.redact import redact, redact_text, safe_logger
from noetic_nb.runs._layer_states import StateIndex, Track
from noetic_nb.runs._plain_text import TEXT_LENGTH, plain
from noetic_nb.runs._recording.recorder import record, recorded
from noetic_nb.sync import run_sync
from noetic_nb.widgets._memory.memory_reading import MemoryReading, base_of
from noetic_nb.widgets._memory.state_texts import difference, shown_state
from noetic_nb.widgets.base._picture import PictureView
from noetic_nb.widgets.base._selection import Moment, Selection

# A larger state is not suitable for editing by hand.
MOST_CHARS: Final = 100_000
# Most open editors; the oldest is dropped first.
MOST_OPEN: Final = 20


class EditableHarness(Protocol):
    """The part of a harness's interface that editing needs."""

    def memory(self, thread_id: str = "default") -> Any:
        """Return the memory of a thread, with ``state``, ``edit`` and ``rewind``."""
        ...


class StateEditor:
    """Opens states as JSON text, and writes them back unless they have changed meanwhile.

    Examples
    --------
    >>> import asyncio
    >>> import noetic_nb as nn
    >>> config = nn.AgentConfig(name="a", step=nn.react(model="m"), memory=[nn.working_memory()])
    >>> harness = nn.AgentHarness(config, model=nn.ScriptedModel(["Hello."]))
    >>> async def main():
    ...     await harness.execute("Hi", thread_id="t1")
    ...     editor = StateEditor(harness)
    ...     token, text = await editor.open("working-memory", "t1")
    ...     await editor.save(token, '{"city": "Rome"}')
    ...     return await harness.memory("t1").state("working-memory")
    >>> asyncio.run(main())
    {'city': 'Rome'}
    """

    def __init__(self, harness: EditableHarness) -> None:
        self._harness = harness
        self._open: OrderedDict[str, tuple[str, str, Any]] = OrderedDict()

    async def open(self, layer_id: str, thread_id: str) -> tuple[str, str]:
        """Return a token, and the state of a layer as JSON text.

        Raises ``NOT_EDITABLE`` for a state with secrets, which are hidden and would be lost, and for one that is too
        large or not JSON data; ``UNKNOWN_LAYER_REFERENCE``.
        """
        state = thaw(await self._harness.memory(thread_id).state(layer_id))
        if redact(state) != state:
            raise _not_editable(layer_id, "holds secrets, which are not shown")
        try:
            text = json.dumps(state, indent=2, ensure_ascii=False)
        except (TypeError, ValueError) as exc:
            raise _not_editable(layer_id, "is no JSON data") from exc
        if len(text) > MOST_CHARS:
            raise _not_editable(layer_id, f"has {len(text):,} characters")
        if plain(text, MOST_CHARS + 1) != text:
            raise _not_editable(layer_id, "has characters that do not show")
        token = uuid4().hex
        self._open[token] = (layer_id, thread_id, state)
        while len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)
        return token, text

    async def save(self, token: str, text: str) -> None:
        """Replace the opened state; ``null`` clears it.

        Raises ``INVALID_STATE`` for text that is not JSON, ``STATE_CHANGED`` if it was written meanwhile,
        ``UNKNOWN_REQUEST`` for an editor that is no longer open, and the errors of `MemoryView.edit`;
        ``storage_failed`` if the layer rejects the state, and then nothing changes.
        """
        if token not in self._open:
            raise NoeticConfigError(
                "UNKNOWN_REQUEST", "This editor was closed.", given=token, hint="Open the state again."
            )
        layer_id, thread_id, before = self._open[token]
        state = _parsed(text)
        memory = self._harness.memory(thread_id)
        if thaw(await memory.state(layer_id)) != before:
            raise NoeticConfigError(
                "STATE_CHANGED",
                f"Layer {plain(layer_id)!r} was changed while you edited it here.",
                given=plain(text, TEXT_LENGTH),
                hint="Open it again; your text is still in the field.",
            )
        await memory.edit(layer_id, state)
        del self._open[token]

    async def rewind(self, thread_id: str, turn: int) -> str:
        """Open a fork of a thread as it was at the end of a turn; returns its name. See ``harness.memory(thread).rewind``."""
        name: str = await self._harness.memory(thread_id).rewind(turn)
        return name


def _parsed(text: str) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not a number of JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as exc:
        raise NoeticConfigError(
            "INVALID_STATE",
            f"This is no JSON: {exc}",
            given=plain(text, TEXT_LENGTH),
            hint="Write null to clear the state.",
        ) from exc


def _not_editable(layer_id: str, why: str) -> NoeticConfigError:
    return NoeticConfigError(
        "NOT_EDITABLE",
        f"The state of layer {plain(layer_id)!r} {why}.",
        given=plain(layer_id),
        hint="Edit it from code: await harness.memory(thread_id).edit(layer_id, state).",
    )


log = safe_logger(__name__)


class MemoryView(PictureView):
    """Show the state of each layer over time: the changes of each write, and states handed to and returned by children.

    With a live harness, you can edit states and rewind to earlier turns, using its ``harness.memory(thread_id)``.

    Parameters
    ----------
    run : Run, AgentHarness, or object with a ``run``
        A growing run, or one that was loaded or replayed. For a harness, the run that already records it, otherwise a new
        recording.
    harness : AgentHarness, optional
        The harness whose states can be edited.
    layer : str, optional
        The id of the layer to show first; by default the one with the most changes.
    thread_id : str, optional
        Show only this thread.
    turn : int, optional
        Show only this turn, counted from 1 in each thread.
    until : int, optional
        Show the turns up to this one, inclusive.
    selection : Selection, optional
        The selection shared with other views: choosing a write selects its turn; if a turn is selected elsewhere, its
        final state is shown here.

    Attributes
    ----------
    position : int
        The shown layer as an index in ``snapshot["layers"]``, -1 for the default.

    Raises
    ------
    NoeticConfigError
        ``NOT_A_RUN``; ``INVALID_TURN`` if `turn` or `until` is not a whole number of at least 0; ``INVALID_THREAD``;
        ``NOT_A_SELECTION``; ``NOT_A_HARNESS``; ``UNKNOWN_LAYER_REFERENCE`` for a layer that a finished run does not have.

    Examples
    --------
    >>> from noetic_nb.runs import Run
    >>> with MemoryView(Run()) as view:
    ...     view
    Memory. No layer has kept anything yet. Layers belong to the agent: AgentConfig(memory=[...]).
    """

    position = traitlets.Int(-1).tag(sync=True)
    scripts = ("base/scene", "memory/memory_view")
    reading: MemoryReading

    def __init__(
        self,
        run: Any,
        *,
        harness: Any = None,
        layer: str | None = None,
        thread_id: str | None = None,
        turn: int | None = None,
        until: int | None = None,
        selection: Selection | None = None,
    ) -> None:
        if harness is None and _is_harness(run):
            harness = run
            run = recorded(harness) or record(harness)
        if harness is not None and not callable(getattr(harness, "memory", None)):
            raise NoeticConfigError(
                "NOT_A_HARNESS", "Only states of a harness can be edited.", given=harness, hint="Pass an AgentHarness."
            )
        given: Any = layer
        if not isinstance(given, str | None):
            hint = 'For example: layer="working-memory".'
            raise NoeticConfigError("UNKNOWN_LAYER_REFERENCE", "A layer is named by its id.", given=given, hint=hint)
        moment = Moment(thread_id, turn, until)
        self._editor = None if harness is None else StateEditor(harness)
        # A harness belongs to the event loop in which it runs: that of the cell that creates the view.
        self._loop = running_loop()
        self._works: set[concurrent.futures.Future[None]] = set()
        begin = None if self._editor is None else self._begin_edit
        reading = MemoryReading(moment, layer_id=layer, begin_edit=begin)
        super().__init__(run, reading, moment=moment, selection=selection)
        named = {track.layer_id for track in reading.index.tracks}
        if layer is not None and named and layer not in named and not getattr(self.run, "is_recording", True):
            self.close()
            raise _unknown_layer(layer, reading.index)

    @traitlets.observe("position")
    def _moved(self, change: Any) -> None:
        self.reading.position = change["new"]

    def to_frame(self) -> Any:
        """Return one row per write.

        Returns
        -------
        pandas.DataFrame
            ``thread_id, execution_id, turn, depth, layer_id, hook, t_ms, changed, state``; `state` is compact JSON without
            secrets, or None if it was cleared.
        """
        import pandas

        with self.up_to_date():
            writes = [write for track in self.reading.index.tracks for write in track.writes]
        rows = [
            (
                redact_text(write.event.where.thread_id),
                redact_text(write.event.where.execution_id),
                write.event.where.turn,
                write.event.where.depth,
                write.event.layer_id,
                write.event.hook,
                write.event.t_ms,
                write.changed,
                None if write.event.state is None else _json(write.event.state),
            )
            for write in writes
        ]
        return pandas.DataFrame(rows, columns=_COLUMNS)

    def difference(self, layer: str, turn: int, *, against: int | None = None, thread_id: str | None = None) -> Any:
        """Return the differences between the states of a layer at the ends of two turns.

        Parameters
        ----------
        The layer's id.
            Its id.
        turn : int
            The later turn.
        against : int, optional
            The turn to compare with; the previous one by default.
        thread_id : str, optional
            Required if several threads have the layer.

        Returns
        -------
        pandas.DataFrame
            ``path, change, before, after``; secrets are replaced. Empty if nothing differs.

        Raises
        ------
        NoeticConfigError
            ``UNKNOWN_LAYER_REFERENCE``; ``INVALID_THREAD`` if several threads have it; ``UNKNOWN_TURN`` if no state is
            recorded up to one of the turns.

        Examples
        --------
        >>> import noetic_nb as nn
        >>> updates = [nn.CallTool("notes/update", city="Rome"), nn.CallTool("notes/update", city="Oslo", days=3)]
        >>> model = nn.ScriptedModel([updates[0], "Noted.", updates[1], "Noted."])
        >>> agent = nn.AgentConfig(name="clerk", step=nn.react(model="m"), memory=[nn.working_memory(id="notes")])
        >>> harness = nn.AgentHarness(agent, model=model)
        >>> run = nn.record(harness)
        >>> for text in ("To Rome.", "To Oslo, for three days."):
        ...     _ = nn.run_sync(harness.execute(text, thread_id="t1"))
        >>> with MemoryView(run) as view:
        ...     print(view.difference("notes", 2).to_string(index=False))
        path  change before after
        city changed   Rome  Oslo
        days   added   None     3
        """
        import pandas

        with self.up_to_date():
            track = self._track(layer, thread_id)
            after = track.at_end_of(turn)
            before = None if after is None else base_of(track, after, turn - 1 if against is None else against)[0]
        if after is None or before is None:
            missing = turn if after is None else turn - 1 if against is None else against
            raise NoeticConfigError(
                "UNKNOWN_TURN",
                f"No state of layer {plain(layer)!r} is recorded up to the end of that turn.",
                given=missing,
                hint="`to_frame()` has the writes that are recorded.",
            )
        changes, _ = difference(before.event.state, after.event.state)
        rows = [(change.path, change.kind, change.before, change.after) for change in changes]
        return pandas.DataFrame(rows, columns=["path", "change", "before", "after"], dtype=object)

    def _track(self, layer: str, thread_id: str | None) -> Track:
        found = [track for track in self.reading.index.tracks if track.layer_id == layer]
        if not found:
            raise _unknown_layer(layer, self.reading.index)
        here = [track for track in found if thread_id is None or track.thread_id == thread_id]
        if len(here) != 1:
            names = ", ".join([repr(plain(track.thread_id)) for track in found[:10]])
            raise NoeticConfigError(
                "INVALID_THREAD", "Name the thread.", given=thread_id, hint=f"The layer is known on {names}."
            )
        return here[0]

    # Editing

    def _begin_edit(self, request: dict[str, Any]) -> None:
        """Start an edit requested by a page, in the event loop of the harness; its result is a separate message."""
        work = self._edit(request)
        if self._loop is None or not self._loop.is_running():
            run_sync(work)
            return
        begun = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._works.add(begun)
        begun.add_done_callback(self._works.discard)

    def _edit(self, request: dict[str, Any]) -> Coroutine[Any, Any, None]:
        async def work() -> None:
            said: dict[str, Any] = {"type": "edited", "asked": request.get("asked")}
            try:
                said |= await self._outcome(request)
            except (NoeticConfigError, NoeticError) as exc:
                said["fault"] = plain(exc, TEXT_LENGTH)
            except Exception as exc:
                log.exception("A state could not be edited.")
                said["fault"] = f"{type(exc).__name__}: {plain(exc, TEXT_LENGTH)}"
            self.send(said)

        return work()

    async def _outcome(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._editor is not None, "the reading refuses edits without one"
        match request:
            case {"what": "edit"}:
                token, text = await self._editor.open(request["layer_id"], request["thread_id"])
                return {"token": token, "text": text}
            case {"what": "save", "token": str(token), "text": str(text)}:
                await self._editor.save(token, text)
                return {"done": "Saved. It takes effect with the next hook, or the next turn."}
            case {"what": "rewind", "turn": int(turn)}:
                name = await self._editor.rewind(request["thread_id"], turn)
                return {"done": f"Thread {plain(name)} goes on from the end of turn {turn}; this thread stays."}
        return {"fault": "This view does not know how to do that."}


_COLUMNS = ["thread_id", "execution_id", "turn", "depth", "layer_id", "hook", "t_ms", "changed", "state"]


def _is_harness(source: Any) -> bool:
    return all(callable(getattr(source, name, None)) for name in ("memory", "execute", "subscribe"))


def _json(state: Any) -> str:
    shown = shown_state(state)[0]
    try:
        return compact_json(shown)
    except (TypeError, ValueError):
        return repr(shown)


def _unknown_layer(layer: str, index: StateIndex) -> NoeticConfigError:
    known = ", ".join([repr(plain(name)) for name in dict.fromkeys([track.layer_id for track in index.tracks])])
    return NoeticConfigError(
        "UNKNOWN_LAYER_REFERENCE", "The run has no layer of this name.", given=layer, hint=f"It has {known or 'none'}."
    )
