"""The facts that layers kept, beside those that were said."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from noetic_nb.items import item_text
from noetic_nb.lab._dialogues import Dialogue, as_dialogues
from noetic_nb.lab._recall_quality.dialogue_runner import Player
from noetic_nb.lab._recall_quality.facts import Fact, KnownFacts, facts_of
from noetic_nb.lab._recall_quality.memory_benches import sets_of_layers
from noetic_nb.lab._recall_quality.synthetic_dialogues import made_dialogues
from noetic_nb.lab._statistics.intervals import Cluster, counted
from noetic_nb.sync import run_sync
from noetic_nb.tokens import estimate_tokens

if TYPE_CHECKING:
    import pandas

COLUMNS: Final = (
    "layers", "said", "kept", "recall", "recall_low", "recall_high", "precision", "precision_low", "precision_high",
)  # fmt: skip
# Where all that is said may be sent.
_WHOLE: Final = 1e9
# The time that a layer writes before a line is no fact that was said.
_STAMP: Final = re.compile(r"^(- )?\[[^\]]*\] ", re.MULTILINE)


def write_fidelity(layers: Any, dialogues: Iterable[Dialogue] | None = None, *, seed: int = 0) -> pandas.DataFrame:
    """Return how much of what was said layers kept, and how much of what they kept was said.

    Parameters
    ----------
    layers : mapping, or sequence
        Sets of layers, as of `memory_bench`.
    dialogues : iterable of Dialogue, optional
        As of `memory_bench`; questions are not asked.
    seed : int
        Of the dialogues that are made.

    Returns
    -------
    pandas.DataFrame
        One row a set: ``layers``; ``said``, the facts in all messages, each once a dialogue; ``kept``, those in all that the
        layers could recall in the end, whatever the budget. ``recall`` is the share of ``said`` that what was kept tells,
        ``precision`` the share of ``kept`` that was said, each with its 95 % interval over dialogues. Facts are found by rules;
        rephrased likes and states (``preference``) count for recall only, and the times that layers write before a line for
        nothing. History keeps nothing.

    Raises
    ------
    NoeticConfigError
        ``INVALID_LAYERS``, ``NO_DIALOGUES``, ``INVALID_DIALOGUE``, ``NO_QUESTIONS``.

    References
    ----------
    .. [1] docs/behaviour/lab.md, "A bench without a judge".

    Examples
    --------
    >>> from noetic_nb.layers import observational_memory
    >>> whole = observational_memory(id="whole", buffer_threshold=20)
    >>> half = observational_memory(lambda texts: [text[: len(text) // 2] for text in texts], id="half", buffer_threshold=20)
    >>> table = write_fidelity([whole, half], made_dialogues(2)).set_index("layers")
    >>> bool(table.recall["whole"] > table.recall["half"] > 0.0), table.precision["whole"].item()
    (True, 1.0)
    """
    import pandas

    played = made_dialogues(seed=seed) if dialogues is None else as_dialogues(dialogues)
    said = [[item_text(item) for session in one.sessions for item in session] for one in played]
    facts, known = [_once(texts) for texts in said], [KnownFacts(texts) for texts in said]
    rows = []
    for name, made in sets_of_layers(layers).items():
        found: list[tuple[Cluster, bool]] = []
        true: list[tuple[Cluster, bool]] = []
        for at, one in enumerate(played):
            player = Player(replace(one, questions=()), made(), [_WHOLE], estimate_tokens, None, Counter())
            kept = [_STAMP.sub(r"\1", text) for text in run_sync(player.kept())]
            tells = KnownFacts(kept)
            found += [(Cluster(at), fact in tells) for fact in facts[at]]
            true += [(Cluster(at), fact in known[at]) for fact in _once(kept) if fact.kind != "preference"]
        shares = [counted([hit for _, hit in some], [cluster for cluster, _ in some]) for some in (found, true)]
        ends = [number for share in shares for number in (share.rate, share.low, share.high)]
        rows.append((name, len(found), len(true), *ends))
    return pandas.DataFrame(rows, columns=COLUMNS)


def _once(texts: Sequence[str]) -> list[Fact]:
    """Return the facts of some texts, each once."""
    return list({(fact.kind, fact.keys): fact for some in facts_of(texts) for fact in some}.values())
