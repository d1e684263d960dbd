"""A simulated provider that caches prompts by the published rules of a real one, and reports cache use in the same way.

It does not measure any provider. It shares no code with the caching prediction, so that each can be compared with the
other: every answered request is kept whole, as the tokens of each of its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from noetic_nb.clock import SYSTEM_CLOCK, Clock
from noetic_nb.errors import NoeticConfigError
from noetic_nb.items import item_text, item_tokens, thaw
from noetic_nb.items._json_text import compact_json
from noetic_nb.models._client import ModelClient, ModelRequest, ModelResponse
from noetic_nb.models.prompt_caching import SIMULATED, CacheRules, cache_rules
from noetic_nb.steps._tools import spec_tokens
from noetic_nb.tokens import Tokenizer, estimate_tokens

_UNIT_BYTES: Final = 8  # four UTF-16 units, which are a token


class _Part(NamedTuple):
    """Tools, instructions or an item: its text, the text in pieces of one token, and its size in tokens."""

    whole: str
    kind: str
    pieces: tuple[bytes, ...]
    tokens: int
    is_history: bool


class _Held(NamedTuple):
    """The kept part of an answered request: all of it, or with marked rules the part before a mark."""

    parts: tuple[_Part, ...]
    is_whole: bool
    used_ms: list[float]


class SimulatedProvider:
    """Answer through another client, and report the cached tokens of each request.

    See docs/behaviour/models.md, "Caching of prompts".

    Parameters
    ----------
    answers : ModelClient
        The client that answers, such as a `ScriptedModel`. The input tokens that it reports are replaced.
    rules : CacheRules, optional
        The caching rules; by default those of the model whose name follows ``simulated-`` in each request's model name.
    clock : Clock, optional
        The clock by which cached parts expire.
    tokenizer : callable, optional
        Counts requests; by default as a harness does.

    Raises
    ------
    NoeticConfigError
        ``INVALID_MODEL``: a request to a model that is not called ``simulated-...``, or whose rules are unknown.

    Examples
    --------
    >>> import noetic_nb as nn
    >>> config = nn.AgentConfig(name="desk", step=nn.react(model="simulated-gpt-4o", instructions="Be brief. " * 600))
    >>> harness = nn.AgentHarness(config, model=SimulatedProvider(nn.ScriptedModel(["One.", "Two."])))
    >>> run = nn.record(harness)
    >>> for question in ("First?", "Second?"):
    ...     _ = nn.run_sync(harness.execute(question))
    >>> [call.cached_tokens for call in run.select(nn.events.ModelCalled)]
    [0, 1408]
    """

    def __init__(
        self,
        answers: ModelClient,
        *,
        rules: CacheRules | None = None,
        clock: Clock = SYSTEM_CLOCK,
        tokenizer: Tokenizer = estimate_tokens,
    ) -> None:
        self._answers = answers
        self._rules = rules
        self._clock = clock
        self._tokenizer = tokenizer
        self._held: dict[str, list[_Held]] = {}

    def __repr__(self) -> str:
        return f"<SimulatedProvider: {sum(map(len, self._held.values()))} prompts held>"

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request; a failed request is not kept.

        Raises
        ------
        NoeticError
            The errors of the other client.
        NoeticConfigError
            ``INVALID_MODEL``.
        """
        rules = self._rules_of(request.model)
        now = self._clock.now_ms()
        parts = self._parts(request)
        cached, read = _held_of(rules, self._held.get(request.model, []), parts, now)
        response = await self._answers.complete(request)
        for held in read:
            held.used_ms[0] = max(held.used_ms[0], now)
        kept = self._held.setdefault(request.model, [])
        if rules.marked:
            kept += [
                _Held(parts[:mark], False, [now]) for mark in _marks(parts) if _size(parts[:mark]) >= rules.minimum
            ]
        else:
            kept.append(_Held(parts, True, [now]))
        usage = response.usage._replace(input_tokens=_size(parts), cached_tokens=cached)
        return response._replace(usage=usage, model=request.model)

    def _rules_of(self, model: str) -> CacheRules:
        rules = self._rules or cache_rules(model)
        if not model.startswith(SIMULATED) or rules is None:
            what = f"A simulated provider serves models whose names say so, {SIMULATED}..., and whose rules are known."
            hint = f"For example: react(model='{SIMULATED}gpt-4o'), or pass rules=CacheRules(...)."
            raise NoeticConfigError("INVALID_MODEL", what, given=model, hint=hint)
        return rules

    def _parts(self, request: ModelRequest) -> tuple[_Part, ...]:
        count, found = self._tokenizer, list[_Part]()
        if request.tools or request.output_schema:
            sizes = [spec_tokens(tool) for tool in request.tools]
            tools = [[t.name, t.description, thaw(t.parameters), t.strict] for t in request.tools]
            text = compact_json([tools, thaw(request.output_schema)])
            found.append(_Part(f"tools {text}", "tools", _pieces(text), sum(sizes), False))
        if request.instructions:
            text = request.instructions
            found.append(_Part(f"system {text}", "system", _pieces(text), count(text), False))
        for item in request.items:
            plain = {key: value for key, value in item.items() if key not in ("id", "status")}
            kind, text = f"{item['type']} {item.get('role')}", item_text(item)
            whole = compact_json(dict(sorted(plain.items())))
            found.append(_Part(whole, kind, _pieces(text), item_tokens(item, count), True))
        return tuple(found)


def _pieces(text: str) -> tuple[bytes, ...]:
    units = text.encode("utf-16-le", "surrogatepass")
    return tuple([units[at : at + _UNIT_BYTES] for at in range(0, len(units), _UNIT_BYTES)])


def _size(parts: Sequence[_Part]) -> int:
    return sum([part.tokens for part in parts])


def _alike(held: Sequence[_Part], asked: Sequence[_Part]) -> tuple[int, int]:
    """Return the number of parts in the common beginning of two requests, and the later one's tokens in it."""
    tokens = 0
    for at, (one, other) in enumerate(zip(held, asked, strict=False)):
        if one.whole == other.whole:
            tokens += other.tokens
            continue
        first = 0
        if one.kind == other.kind:
            for a, b in zip(one.pieces, other.pieces, strict=False):
                if a != b or len(a) < _UNIT_BYTES:
                    break
                first += 1
        return at, tokens + max(0, min(first, other.tokens - 1))
    return min(len(held), len(asked)), tokens


def _marks(parts: Sequence[_Part]) -> list[int]:
    front = next((at for at, part in enumerate(parts) if part.is_history), len(parts))
    return sorted({mark for mark in (*range(1, front + 1), len(parts)) if mark})


def _held_of(rules: CacheRules, kept: Sequence[_Held], parts: Sequence[_Part], now: float) -> tuple[int, list[_Held]]:
    """Return the number of cached tokens of a request, and the earlier requests that hold them."""
    best, read = 0, list[_Held]()
    for held in kept:
        if now - held.used_ms[0] > rules.lifetime_ms:
            continue
        count, tokens = _alike(held.parts, parts)
        if held.is_whole:
            best = max(best, 0 if tokens < rules.minimum else tokens - (tokens - rules.minimum) % rules.block)
            continue
        reach = any(0 <= mark - len(held.parts) < rules.lookback for mark in _marks(parts))
        if count == len(held.parts) and reach and _size(parts[:count]) >= best:
            size = _size(parts[:count])
            read = [*(read if size == best else ()), held]
            best = size
    return best, read
