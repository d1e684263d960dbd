"""Edit the states of a live harness: a state is replaced only if it is still the state that was shown."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any, Final, Protocol
from uuid import uuid4

from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import thaw
from noetic_nb.redact import redact
from noetic_nb.runs.plain_text import TEXT_LENGTH, plain

__all__ = ["EditableHarness", "StateEditor"]

# A state beyond this is no text to edit by hand.
MOST_CHARS: Final = 100_000
# Editors that were left open; the oldest goes first.
MOST_OPEN: Final = 20


class EditableHarness(Protocol):
    """As much of a harness as editing needs."""

    def memory(self, thread_id: str = "default") -> Any:
        """Return the memory of a thread, with ``state``, ``edit`` and ``rewind``."""
        ...


class StateEditor:
    """Opens states as JSON text, and writes them back where nobody else has changed them meanwhile.

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

        Raises
        ------
        NoeticConfigError
            ``NOT_EDITABLE`` for a state with secrets, which are not shown and would be lost, and for one that is too large or
            no JSON data; ``UNKNOWN_LAYER_REFERENCE``.
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
        """Replace the state that was opened; ``null`` clears it.

        Raises
        ------
        NoeticConfigError
            ``INVALID_STATE`` for what is no JSON, ``STATE_CHANGED`` where someone wrote it meanwhile, ``UNKNOWN_REQUEST`` for
            an editor that is not open any more; and what ``harness.memory(thread).edit`` raises, such as ``NOT_EDITABLE``.
        NoeticError
            ``storage_failed`` where the layer refuses the state; nothing is changed then.
        """
        if token not in self._open:
            raise NoeticConfigError(
                "UNKNOWN_REQUEST", "This editor is not open any more.", given=token, hint="Open the state again."
            )
        layer_id, thread_id, before = self._open[token]
        state = _parsed(text)
        memory = self._harness.memory(thread_id)
        if thaw(await memory.state(layer_id)) != before:
            raise NoeticConfigError(
                "STATE_CHANGED",
                f"Layer {plain(layer_id)!r} was written while it was edited here.",
                given=plain(text, TEXT_LENGTH),
                hint="Open it again; what you wrote is still in the field.",
            )
        await memory.edit(layer_id, state)
        del self._open[token]

    async def rewind(self, thread_id: str, turn: int) -> str:
        """Open a fork as a thread was at the end of a turn; returns its name. See ``harness.memory(thread).rewind``."""
        name: str = await self._harness.memory(thread_id).rewind(turn)
        return name


def _parsed(text: str) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no number of JSON")

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
