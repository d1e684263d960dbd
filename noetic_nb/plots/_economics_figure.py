"""The savings of stopping against the good runs that it loses."""

from __future__ import annotations

from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from noetic_nb.errors import NoeticConfigError
from noetic_nb.plots._figure_style import (
    Theme,
    as_figure,
    axes_for,
    named,
    needs_columns,
    put_legend,
    say_empty,
    series,
)
from noetic_nb.runs._plain_text import count

SAVED: Final = {
    "tokens_saved": "tokens saved\nin failed runs",
    "cost_saved": "US dollars saved\nin failed runs",
    "time_saved_s": "seconds saved\nin failed runs",
}


@as_figure
def economics(
    frame: Any,
    *,
    saved: str = "tokens_saved",
    domain: str = "all",
    ax: Axes | None = None,
    theme: Theme | None = None,
) -> Axes:
    r"""Draw the savings and losses of each threshold of a detector, beside a plain cap on steps.

    Parameters
    ----------
    frame : pandas.DataFrame
        Of `noetic_nb.lab.economics`.
    saved : {"tokens_saved", "cost_saved", "time_saved_s"}
        What is saved.
    domain : str
        One of the frame; all of them together by default.
    ax : matplotlib Axes, optional
        Where to draw; on a figure of their own by default.
    theme : {"light", "dark"}, optional
        By default inks follow the ground of the figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes; the bands are the 95 % intervals of what is saved. A threshold of which that is unknown is a gap.

    Raises
    ------
    NoeticConfigError
        ``INVALID_FRAME``, ``UNKNOWN_COLUMN``, ``UNKNOWN_DOMAIN``, ``INVALID_AXES`` or ``INVALID_THEME``.

    Examples
    --------
    >>> import pandas
    >>> table = {"policy": "detector", "domain": "all", "threshold": [1.0], "good_lost": [0.1], "tokens_saved": [900.0]}
    >>> economics(pandas.DataFrame(table)).get_ylabel()
    'tokens saved\nin failed runs'
    """
    needs_columns(frame, "policy", "domain", "threshold", "good_lost", saved)
    known = list(dict.fromkeys(frame["domain"]))
    if len(frame) and domain not in known:
        raise NoeticConfigError(
            "UNKNOWN_DOMAIN",
            "The table has no such domain.",
            given=domain,
            hint=f"There are {', '.join(map(str, known))}.",
        )
    axes, look = axes_for(ax, theme, "good runs lost", SAVED.get(saved, named(saved)))
    # From the threshold that stops least: what is lost and what is saved grow together.
    rows = frame[frame["domain"] == domain].sort_values(["policy", "threshold"], ascending=False)
    if not rows[saved].notna().any():
        say_empty(axes, look, "No threshold was tried" if not len(rows) else "Nobody knows what the failed runs spent")
        return axes
    # The detector first, in the strongest colour.
    policies = sorted(dict.fromkeys(rows["policy"]), key=lambda name: (name != "detector", str(name)))
    drawn: dict[str, Any] = {}
    for place, policy in enumerate(policies):
        own, (colour, marker, dash) = rows[rows["policy"] == policy], series(place)
        name = frame.attrs.get("detector", policy) if policy == "detector" else policy
        low, high = f"{saved}_low", f"{saved}_high"
        if low in own.columns and high in own.columns:
            axes.fill_between(own["good_lost"], own[low], own[high], color=colour, alpha=0.18, lw=0)
        (drawn[named(name)],) = axes.plot(
            own["good_lost"], own[saved], color=colour, marker=marker, linestyle=dash, lw=look.line(2.2), ms=look.line(5),
            mec=look.ground, mew=look.line(0.5),
        )  # fmt: skip
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    axes.set_xlim(left=min(0.0, float(rows["good_lost"].min())))
    axes.set_ylim(bottom=min(0.0, float(rows[saved].min())))
    if float(rows[saved].max()) >= 10:
        axes.yaxis.set_major_formatter(lambda value, _: count(value))
    put_legend(axes, look, list(drawn.values()), list(drawn))
    return axes
