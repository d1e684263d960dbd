"""Which rows of a table no other row beats in everything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from noetic_nb._core.arguments import closest
from noetic_nb.errors import NoeticConfigError

if TYPE_CHECKING:
    import pandas


def pareto(
    frame: pandas.DataFrame, *, maximise: str | Iterable[str] = (), minimise: str | Iterable[str] = ()
) -> pandas.DataFrame:
    """Return the rows that are not dominated: no other is as good in every column and better in one.

    Parameters
    ----------
    frame : pandas.DataFrame
        Such as that of `sweep`.
    maximise, minimise : str or iterable of str
        Columns of which more, or less, is better.

    Returns
    -------
    pandas.DataFrame
        Rows in their order, with their index and ``attrs``. Rows that are equal in every named column stay together; a row
        without a number in one of them is left out, and counted in ``attrs["left_out"]``.

    Raises
    ------
    NoeticConfigError
        ``INVALID_FRAME``, ``UNKNOWN_COLUMN``, or ``INVALID_OBJECTIVES`` for none, for one both ways, or for no numbers.

    References
    ----------
    .. [1] Deb, K. (2001). Multi-objective optimization using evolutionary algorithms, section 2.4.

    Examples
    --------
    >>> import pandas
    >>> frame = pandas.DataFrame({"caught": [0.5, 0.9, 0.4], "blocked": [0.1, 0.3, 0.2]})
    >>> pareto(frame, maximise="caught", minimise="blocked").index.tolist()
    [0, 1]
    """
    import numpy
    import pandas

    if not isinstance(frame, pandas.DataFrame):
        raise NoeticConfigError("INVALID_FRAME", "That is no table.", given=frame, hint="Pass the frame of lab.sweep.")
    more, less = _listed(maximise), _listed(minimise)
    columns = [*more, *less]
    if not columns or len(set(columns)) < len(columns):
        what = "Say once of each column whether more or less is better."
        hint = 'Such as maximise="caught", minimise="blocked".'
        raise NoeticConfigError("INVALID_OBJECTIVES", what, given={"maximise": more, "minimise": less}, hint=hint)
    for name in columns:
        if name not in frame.columns:
            known = list(map(str, frame.columns))
            hint = closest(str(name), known) or f"There are {', '.join(known)}."
            raise NoeticConfigError("UNKNOWN_COLUMN", "The table has no such column.", given=name, hint=hint)
        if not pandas.api.types.is_numeric_dtype(frame[name]):
            hint = "Name columns of numbers."
            raise NoeticConfigError("INVALID_OBJECTIVES", "A column has no numbers.", given=name, hint=hint)
    signs = numpy.array([1.0] * len(more) + [-1.0] * len(less))
    points = frame[columns].to_numpy(dtype=float) * signs
    known_rows = ~numpy.isnan(points).any(axis=1)
    keeps = [
        bool(is_known) and not ((points >= point).all(axis=1) & (points > point).any(axis=1)).any()
        for is_known, point in zip(known_rows, points, strict=True)
    ]
    found = frame.loc[keeps].copy()
    found.attrs = {**frame.attrs, "left_out": int((~known_rows).sum())}
    return found


def _listed(names: Any) -> list[Any]:
    return [names] if isinstance(names, str) else list(names)
