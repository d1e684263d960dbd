"""Random sessions for comparing two regulators with the compiled package's interface, observable by observable."""

from __future__ import annotations

import json
import math
import random
import unicodedata
from typing import Any

from noetic_nb.regulator import Regulator
from noetic_nb.regulator._measures.topics import RELEASE_WORDS, lexicon
from noetic_nb.regulator.decisions import CircuitBreak


def _lexicon_words() -> list[str]:
    words: list[str] = []
    for value in lexicon().values():
        for entry in value if isinstance(value, list) else []:
            if isinstance(entry, str):
                words.append(entry)
            else:
                words += entry["first_words"] + entry["then_stems"]
    return words


TOPICS = ["async", "auth", "billing", "client", "refactor", "database", "lookup", "report", "cache", "parser"]
MANY_SCRIPTS = (
    "é ß İ ı ſ K Σ ς हिन्दी भाषा 日本語 語 テスト dịch việt שלום العربية ไทย ру́сский ½ ² Ⅷ ⓐ Ⓑ 😀 👍🏽 ☃ ǅ ᾳ ﬁ ͅa"
)
SCRIPTS = MANY_SCRIPTS.split(" ")
MARKS = [*",;:!?.()[]{}/\\-_'\"`|#*=<>@&%$~^+", "...", "!!!", "??", "```", "\n", "\t", "\u00a0", "\u2028", "\u0085"]
ODD_SPACES = ["\x1c", "\x1f", "\u200b", "\u3000", "\x0b"]
LINES = ["1. first\n", "2) then\n", "# head\n", "## head two\n", "a|b\n", "step 3\n", "```\nx = 1\n```\n", "- item\n"]
VOCABULARY = TOPICS * 6 + _lexicon_words() + sorted(RELEASE_WORDS.stop_words)[:20] + sorted(RELEASE_WORDS.short_terms)

# The two sides have different Unicode versions, so only use code points assigned in Python's (older) tables.
ASSIGNED = [chr(code) for code in range(0x20, 0x20000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]


def random_word(rng: random.Random) -> str:
    roll = rng.random()
    if roll < 0.75:
        word = rng.choice(VOCABULARY)
    elif roll < 0.87:
        word = rng.choice(SCRIPTS)
    elif roll < 0.95:
        word = "".join(rng.choice(ASSIGNED) for _ in range(rng.randint(1, 4)))
    else:
        word = str(rng.randint(0, 12_345))
    if rng.random() < 0.08:
        word = word.upper()
    if rng.random() < 0.15:
        word += rng.choice(["s", "ed", "ing", "?", "!", "ा", "́", ".", rng.choice(SCRIPTS)])
    return word


def random_text(rng: random.Random, longest: int) -> str:
    if rng.random() < 0.05:
        return rng.choice(
            ["", " ", "ok", "Thanks.", "yes!", "got it.!", "12.", "7", "👍", "#", "  sure  ", "help!x", "help!", "?"]
        )
    parts: list[str] = []
    for _ in range(rng.randint(1, longest)):
        parts.append(random_word(rng))
        roll = rng.random()
        parts.append(" " if roll < 0.8 else rng.choice(MARKS) if roll < 0.96 else rng.choice(LINES + ODD_SPACES))
    return "".join(parts)


def random_event(rng: random.Random) -> tuple[str, tuple[Any, ...]]:
    """Return a factory's name and its arguments."""
    kind = rng.choices(
        [
            "turn_start",
            "token",
            "turn_complete",
            "cost",
            "quality_feedback",
            "user_correction",
            "tool_call",
            "tool_result",
        ],
        [14, 14, 14, 10, 14, 10, 12, 6],
    )[0]
    quality = rng.choice([0.5, 0.35, 0.2, 0.1, 0.8, rng.random(), rng.random(), 5.0, -3.0, math.nan, math.inf, 0.3])
    arguments: dict[str, tuple[Any, ...]] = {
        "turn_start": (random_text(rng, 8),),
        "token": (
            random_word(rng),
            rng.choice([0.0, -0.1, -1.5, -4.0, -9.0, math.nan, -math.inf, 1.0]),
            rng.randint(0, 9),
        ),
        "turn_complete": (random_text(rng, rng.choice([5, 15, 60])),),
        "cost": (
            rng.randint(0, 500),
            rng.choice([0, 40, 400, 2000, 2**32 - 1]),
            rng.randint(0, 20_000),
            rng.choice([None, "p"]),
        ),
        "quality_feedback": (quality, rng.choice([None, [(0, 3)]])),
        "user_correction": (random_text(rng, 4), rng.random() < 0.85),
        "tool_call": (rng.choice(["a", "a", "a", "b", ""]), rng.choice([None, "{}"])),
        "tool_result": (rng.choice(["a", "b"]), rng.random() < 0.6, rng.randint(0, 10**6), rng.choice([None, "boom"])),
    }
    return kind, arguments[kind]


def observe(regulator: Any) -> dict[str, Any]:
    """Return all observable values of a regulator except its snapshot."""
    decision = regulator.decide()
    reason, patterns = decision.reason, decision.patterns
    return {
        "kind": decision.kind,
        "drift": (decision.drift_score, decision.drift_tokens, decision.task_tokens),
        "is": (
            decision.is_continue(),
            decision.is_scope_drift(),
            decision.is_circuit_break(),
            decision.is_procedural_warning(),
            decision.is_low_confidence(),
        ),
        "has_suggestion": bool(decision.suggestion),
        "reason": None if reason is None else {name: getattr(reason, name) for name in REASON_FIELDS},
        "patterns": None
        if patterns is None
        else [
            {name: getattr(pattern, name) for name in PATTERN_FIELDS} | {"repr": repr(pattern)} for pattern in patterns
        ],
        "repr": (repr(decision), repr(reason), repr(regulator)),
        "confidence": regulator.confidence(),
        "coverage": regulator.logprob_coverage(),
        "metrics": regulator.metrics_snapshot(),
        "tools": (
            regulator.tool_total_calls(),
            regulator.tool_counts_by_name(),
            regulator.tool_total_duration_ms(),
            regulator.tool_failure_count(),
        ),
        "totals": (regulator.total_tokens_out(), regulator.cost_cap_tokens(), regulator.implicit_corrections_count()),
        "prelude": regulator.corrections_prelude(),
        "injected": regulator.inject_corrections("next"),
        "user": regulator.user_id(),
    }


REASON_FIELDS = (
    "kind",
    "tokens_spent",
    "tokens_cap",
    "mean_quality_last_n",
    "turns",
    "mean_delta",
    "cluster",
    "failure_count",
    "tool_name",
    "consecutive_count",
)
PATTERN_FIELDS = (
    "user_id",
    "topic_cluster",
    "pattern_name",
    "learned_from_turns",
    "confidence",
    "example_corrections",
)


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Return the differences of two snapshots; learned rates may differ by one part in 10**12."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = [f"{path}: keys {sorted(ours)} != {sorted(theirs)}"] if set(ours) != set(theirs) else []
        return found + [
            d for key in set(ours) & set(theirs) for d in differences(ours[key], theirs[key], f"{path}.{key}")
        ]
    if isinstance(ours, float) and isinstance(theirs, float) and path.endswith("success_rate"):
        return [] if math.isclose(ours, theirs, rel_tol=1e-12) else [f"{path}: {ours!r} != {theirs!r}"]
    return [] if ours == theirs else [f"{path}: {ours!r} != {theirs!r}"]


class Pair:
    """Our regulator and the wheel's, with the same events."""

    def __init__(self, ours: Any, theirs: Any, user: str) -> None:
        self.modules = (ours, theirs)
        self.regulators = tuple(module.Regulator.for_user(user) for module in self.modules)
        self.history: list[Any] = []

    def feed(self, kind: str, arguments: tuple[Any, ...]) -> None:
        self.history.append((kind, arguments))
        for module, regulator in zip(self.modules, self.regulators, strict=True):
            regulator.on_event(getattr(module.LLMEvent, kind)(*arguments))

    def configure(self, method: str, value: Any) -> None:
        self.history.append((method, value))
        for regulator in self.regulators:
            getattr(regulator, method)(value)

    def swap_snapshots(self) -> None:
        """Let each side continue from the other's snapshot."""
        self.history.append("swap")
        mine, other = (regulator.export_json() for regulator in self.regulators)
        self.regulators = (self.modules[0].Regulator.from_json(other), self.modules[1].Regulator.from_json(mine))

    def compare(self) -> None:
        ours, theirs = (observe(regulator) for regulator in self.regulators)
        assert ours == theirs, (differences(ours, theirs), self.history[-6:])

    def compare_snapshots(self) -> None:
        ours, theirs = (json.loads(regulator.export_json()) for regulator in self.regulators)
        found = differences(ours, theirs)
        assert not found, (found, self.history[-12:])


def run_session(ours: Any, theirs: Any, seed: int, *, most_events: int) -> int:
    """Run one random session and compare after every event; return the number of events."""
    rng = random.Random(seed)
    pair = Pair(ours, theirs, f"user {seed}")
    if rng.random() < 0.3:
        pair.configure("with_cost_cap", rng.choice([0, 500, 3000, 2**32 - 1]))
    count = rng.randint(1, most_events)
    for _ in range(count):
        if rng.random() < 0.01:
            # A window so long that the time between two events never matters.
            pair.configure("with_implicit_correction_window_secs", 1e6)
        pair.feed(*random_event(rng))
        pair.compare()
        if rng.random() < 0.2:
            pair.compare_snapshots()
        if rng.random() < 0.01:
            pair.swap_snapshots()
    pair.compare_snapshots()
    return count


def reason(regulator: Regulator) -> Any:
    """Return why a regulator breaks the circuit, or None."""
    decision = regulator.decide()
    return decision.reason if isinstance(decision, CircuitBreak) else None
