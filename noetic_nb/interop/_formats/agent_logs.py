"""Shared parts of the readers of agent logs: contents, results, and the run of a conversation with its children."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from noetic_nb.interop._formats.sources import NOTHING, WRONG, Keys, Unread
from noetic_nb.items._frozen import FrozenDict
from noetic_nb.items._item import Item
from noetic_nb.items._messages import message as msg
from noetic_nb.items._origins import MODEL, Origin, with_origin
from noetic_nb.redact import Redaction
from noetic_nb.runs import Run
from noetic_nb.runs._conversation import conversation_events
from noetic_nb.runs._run import run_of_settled

Talk = list[msg.Message | msg.Compaction | msg.Child]

_TEXTS: Final = frozenset({"text", "input_text", "output_text"})


class Notes:
    """The parts of a source that a run has no place for, listed in ``meta["unmapped"]``."""

    def __init__(self) -> None:
        self._said: list[dict[str, Any]] = []
        self._unread = Unread()

    @property
    def all(self) -> list[dict[str, Any]]:
        return [*self._said, *self._unread.notes()]

    def add(self, place: str, value: object, what: str = "no place in a run") -> None:
        """Note a value, unless it is empty."""
        if value not in NOTHING:
            self._said.append({"place": place, "what": what, "value": msg.shown(value)})

    @contextmanager
    def line(self, number: int, value: Mapping[str, Any]) -> Iterator[None]:
        """Note a malformed line instead of failing, so that the other lines are still read."""
        try:
            yield
        except WRONG as error:
            self.add(
                f"line {number + 1}", value, f"a line that cannot be read ({type(error).__name__}: {str(error)[:200]})"
            )

    def rest(self, place: str, value: Any, known: Keys, path: str = "") -> None:
        """Note the values of a record, at any depth, whose keys no reader uses."""
        self._unread.look(place, value, known, path)


def text_of(value: Any) -> str | None:
    """Return a non-empty text, None for any other value."""
    return value if isinstance(value, str) and value else None


def input_parts(content: Any, notes: Notes, place: str) -> tuple[FrozenDict, ...]:
    """Return the text and image parts of a message to the model; other media are named in a text and noted."""
    if isinstance(content, str):
        return (msg.input_text(content),) if content else ()
    if content not in NOTHING and not isinstance(content, list | tuple):
        notes.add(place, content, "content of no known form")
    parts = []
    for number, part in enumerate(msg.records(content)):
        kind, text = str(part.get("type")), part.get("text")
        source = msg.mapping(part.get("source"))
        url = part.get("image_url", source.get("url", source.get("path")))
        url = msg.mapping(url).get("url") if isinstance(url, Mapping) else url
        if isinstance(source.get("data"), str):
            url = f"data:{source.get('media_type', 'image/png')};base64,{source['data']}"
        if kind in _TEXTS and isinstance(text, str):
            parts.append(msg.input_text(text))
        elif "image" in kind and isinstance(url, str):
            parts.append(FrozenDict(type="input_image", imageUrl=url, detail="auto"))
        else:
            parts.append(msg.input_text(f"[{kind}]"))
            notes.add(f"{place}[{number}]", part, "a message part that a run cannot represent")
    return tuple(parts)


def user(content: Any, notes: Notes, place: str, **known: Any) -> msg.Message:
    return msg.Message("user", (msg.text_message("user", input_parts(content, notes, place)),), **known)


def system(text: str, **known: Any) -> msg.Message:
    return msg.Message("system", (msg.text_message("system", (msg.input_text(text),)),), **known)


def feedback(text: str, **known: Any) -> msg.Message:
    """Make a message from the agent's environment; its text is as untrusted as a tool's."""
    return msg.Message(
        "system", (with_origin(msg.text_message("system", (msg.input_text(text),)), Origin("tool")),), **known
    )


def by_program(parts: tuple[FrozenDict, ...], **known: Any) -> msg.Message:
    """Make a program-written message in the user role, which may hold the result of a tool."""
    return msg.Message("system", (with_origin(msg.text_message("user", parts), MODEL),), **known)


def answer(text: str, calls: Sequence[Item], *, thoughts: str | None = None, **known: Any) -> msg.Message:
    """Make a model's answer: its reasoning, its text if any, then its calls."""
    items = [msg.thought(thoughts)] if thoughts else []
    if text or not calls:
        items.append(msg.text_message("assistant", (msg.output_text(text),)))
    return msg.Message("assistant", (*items, *calls), **known)


def result(
    call_id: str, content: Any, native: tuple[str, Any], *, error: str | None = None, known: bool = True, **more: Any
) -> msg.Message:
    """Make the result of a call; `error` is the reason of a failure, `known` is whether the source reports failures.

    `native` is the provider's form of the result, kept if the text only names an image or a file.
    """
    text, is_whole = msg.result_text(content)
    own = {} if is_whole else msg.native(*native)
    errors = {} if error is None else {call_id: error}
    return msg.Message("tool", (msg.call_output(call_id, text, **own),), errors=errors, statuses_known=known, **more)


def agent_run(
    run_id: str | None,
    talk: Talk,
    meta: Mapping[str, Any],
    notes: Notes,
    *,
    policy: str = "",
    quality: float | None = None,
    estimated: Sequence[str] = (),
    closing_tools: Sequence[str] = (),
) -> Run:
    """Return a conversation as a run; `estimated` names the facts that the source itself calls estimates."""
    about, events = conversation_events(
        talk, meta=meta, unmapped=notes.all, policy=policy, quality=quality, closing_tools=closing_tools, ended=True
    )
    about["estimated"] = list(dict.fromkeys([*about["estimated"], *estimated]))
    return run_of_settled(None if run_id is None else Redaction().text(run_id), about, events)
