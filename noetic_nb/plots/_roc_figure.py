"""How well detectors tell failed runs from good ones: their ROC curves, beside those of baselines."""

from __future__ import annotations

from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from noetic_nb.errors import NoeticConfigError
from noetic_nb.plots._figure_style import Theme, as_figure, axes_for, named, put_legend, put_title, series

# Taller than other figures: both axes are shares.
HEIGHT: Final = 7.0


@as_figure
def roc(calibration: Any, *, ax: Axes | None = None, theme: Theme | None = None) -> Axes:
    """Draw the ROC curves on held-out tasks: detectors that were tried as strong lines, baselines as thin ones, chance dotted.

    Parameters
    ----------
    calibration : Calibration
        Of `noetic_nb.lab.calibrate`.
    ax : matplotlib Axes, optional
        Where to draw; on a figure of their own by default.
    theme : {"light", "dark"}, optional
        By default inks follow the ground of the figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes; a ring marks the threshold that was chosen.

    Raises
    ------
    NoeticConfigError
        ``INVALID_CALIBRATION``, ``INVALID_AXES`` or ``INVALID_THEME``.

    Examples
    --------
    >>> from noetic_nb.lab import calibrate, datasets
    >>> from noetic_nb.regulator import CallBudget
    >>> roc(calibrate(CallBudget(), datasets.airline(), samples=20)).get_xlabel()
    'good runs stopped'
    """
    from noetic_nb.lab import Calibration

    if not isinstance(calibration, Calibration):
        raise NoeticConfigError(
            "INVALID_CALIBRATION",
            "That is no calibration.",
            given=calibration,
            hint="Pass what lab.calibrate returned.",
        )
    axes, look = axes_for(ax, theme, "good runs stopped", "failed runs stopped", height=HEIGHT)
    table = calibration.table
    baselines = set(table[table["baseline"]]["detector"])
    handles = axes.plot([0.0, 1.0], [0.0, 1.0], color=look.muted, lw=look.line(1.2), linestyle=":", label="chance")
    names = ["chance"]
    # Detectors on top, whatever their place in the table.
    for place, name in enumerate(sorted(calibration.curves, key=lambda name: name in baselines)):
        curve, (colour, marker, dash) = calibration.curves[name], series(place)
        is_baseline = name in baselines
        xs, ys = ([0.0, *curve[share], 1.0] for share in ("stopped_good", "stopped_failed"))
        names.append(named(name))
        handles += axes.plot(
            xs, ys, color=colour, linestyle=dash, lw=look.line(1.2 if is_baseline else 2.8), marker=marker,
            ms=look.line(4.5 if is_baseline else 6), markevery=0.12, zorder=2 if is_baseline else 3, label=named(name),
        )  # fmt: skip
    judged = table[
        (table["detector"] == calibration.detector) & (table["split"] == "held out") & (table["domain"] == "all")
    ]
    if calibration.threshold is not None and len(judged):
        row = judged.iloc[0]
        names.append(f"threshold {calibration.threshold:g}")
        handles += axes.plot(
            [row["stopped_good"]], [row["stopped_failed"]], "o", ms=look.line(14), mfc="none", mec=look.ink, mew=look.line(2),
            zorder=4, label=names[-1],
        )  # fmt: skip
    for axis, limits in ((axes.xaxis, axes.set_xlim), (axes.yaxis, axes.set_ylim)):
        limits(-0.02, 1.02)
        axis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    put_title(axes, look, "Held-out tasks" if calibration.detector else "Held-out tasks: off")
    put_legend(axes, look, handles, names)
    return axes
