"""Sums over runs that are stopped, at every threshold and in every domain, with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from noetic_nb.lab._detection.detectors import Reached
from noetic_nb.lab._detection.resampling import Booleans, Floats, percentiles, share, weights_of

if TYPE_CHECKING:
    import pandas

__all__ = ["table_of"]

Left: TypeAlias = Callable[[int], tuple[float, float, float]]
"""From a place in a run to the tokens, the cost and the seconds after it."""

_SAVED: Final = ("tokens_saved", "cost_saved", "time_saved_s")


def table_of(
    policies: Mapping[str, tuple[Sequence[float], Sequence[Sequence[Reached]]]],
    left: Sequence[Left],
    failed: Sequence[bool],
    groups: Sequence[Hashable],
    domains: Sequence[str],
    *,
    samples: int,
    seed: int,
) -> pandas.DataFrame:
    """Return the rows of each policy, which is its thresholds and where each run reaches which height."""
    import pandas

    rows: list[dict[str, Any]] = []
    here = np.asarray(domains)
    parts = [("all", np.ones(len(here), dtype=bool)), *[(name, here == name) for name in sorted(set(domains))]]
    labels = np.asarray(failed)
    weights = {name: _weights(part, groups, samples, seed) for name, part in parts}
    for policy, (thresholds, traces) in policies.items():
        stopped, saved = _stopped(thresholds, traces, left)
        for name, part in parts:
            # A sum of which one part may be unknown is unknown at every threshold: a row of zeros would look measured.
            wholes = np.asarray([after(-1) for after in left])[part & labels]
            known = (~np.isnan(wholes).any(axis=0)).tolist()
            some = [group for group, is_here in zip(groups, part, strict=True) if is_here]
            for place, threshold in enumerate(thresholds):
                row = _row(stopped[place][part], saved[place][part], labels[part], known, weights[name], some)
                rows.append({"policy": policy, "domain": name, "threshold": float(threshold), **row})
    return pandas.DataFrame(rows)


def _weights(part: Booleans, groups: Sequence[Hashable], samples: int, seed: int) -> Floats:
    return weights_of([group for group, is_here in zip(groups, part, strict=True) if is_here], samples, seed)


def _stopped(
    thresholds: Sequence[float], traces: Sequence[Sequence[Reached]], left: Sequence[Left]
) -> tuple[Booleans, Floats]:
    """Return the runs that are stopped at each threshold, and the spending after that."""
    stopped = np.zeros((len(thresholds), len(traces)), dtype=bool)
    saved = np.zeros((len(thresholds), len(traces), len(_SAVED)))
    wanted = np.asarray(thresholds)
    for at, (trace, after) in enumerate(zip(traces, left, strict=True)):
        # Heights only grow, so the first that is high enough is where the run is stopped.
        first = np.searchsorted([score for _, score in trace], wanted, side="left")
        remaining = [after(seq) for seq, _ in trace]
        for place, height in enumerate(first):
            if height < len(trace):
                stopped[place, at] = True
                saved[place, at] = np.nan_to_num(remaining[height])
    return stopped, saved


def _row(
    stopped: Booleans,
    saved: Floats,
    failed: Booleans,
    known: Sequence[bool],
    weights: Floats,
    groups: Sequence[Hashable],
) -> dict[str, float]:
    row: dict[str, float] = {"good": int((~failed).sum()), "failed": int(failed.sum())}
    of_failed = np.where((stopped & failed)[:, None], saved, 0.0)
    drawn = weights @ of_failed
    for place, name in enumerate(_SAVED):
        row[name] = float(of_failed[:, place].sum()) if known[place] else nan
        has_ends = known[place] and len(set(groups)) > 1
        row[f"{name}_low"], row[f"{name}_high"] = percentiles(drawn[:, place]) if has_ends else (nan, nan)
    for name, among in (("good_lost", ~failed), ("failed_stopped", failed)):
        row[name], row[f"{name}_low"], row[f"{name}_high"] = share(stopped, among, weights, groups)
    return row
