"""Exports the picture of a view as SVG, or as PNG with matplotlib, both from the same scene."""

from __future__ import annotations

from os import PathLike
from typing import Any, Literal

from noetic_nb._core.atomic_write import as_path, write_whole
from noetic_nb.errors import NoeticConfigError
from noetic_nb.plots._scene.scene import GROUNDS, Scene
from noetic_nb.plots._scene.svg import to_svg
from noetic_nb.widgets.base._run_view import RunView

LEAST, MOST = 200, 4_000
"""Limits of the width of a picture, in CSS pixels."""


class PictureView(RunView):
    """A view whose reading has a `scene`: you can export its picture."""

    def to_svg(self) -> str:
        """Return the picture as an SVG file with a light background, for editors and web pages.

        Examples
        --------
        >>> from noetic_nb.runs import Run
        >>> from noetic_nb.widgets import RegulatorTrends
        >>> RegulatorTrends(Run()).to_svg()[:4]
        '<svg'
        """
        return to_svg(self._scene())

    def to_png(
        self, path: str | PathLike[str] | None = None, *, width: int = 960, theme: Literal["light", "dark"] = "light"
    ) -> bytes:
        """Return the picture as a PNG, drawn by matplotlib.

        Parameters
        ----------
        path : str or path, optional
            A file to write it to as well.
        width : int, pixels
            Its width on a page, 200 to 4000; the file has twice as many pixels.
        theme : {"light", "dark"}
            Its background and text colours.

        Returns
        -------
        bytes
            The file.

        Raises
        ------
        NoeticConfigError
            ``INVALID_WIDTH``, ``INVALID_THEME``, ``CANNOT_WRITE``.

        Examples
        --------
        >>> from noetic_nb.runs import Run
        >>> from noetic_nb.widgets import RegulatorTrends
        >>> RegulatorTrends(Run()).to_png(theme="dark")[1:4]
        b'PNG'
        """
        _check(width, theme)
        from noetic_nb.plots._scene.axes import to_png  # importing matplotlib is slow

        picture = to_png(self._scene(), width, theme)
        if path is not None:
            write_whole(as_path(path), picture)
        return picture

    def _scene(self) -> Scene:
        with self.up_to_date():
            scene: Scene = self.reading.scene()  # type: ignore[attr-defined]  # of the readings of these views
            return scene


def _check(width: Any, theme: Any) -> None:
    if not isinstance(width, int) or isinstance(width, bool) or not LEAST <= width <= MOST:
        hint = f"Use a whole number from {LEAST} to {MOST}, such as 960."
        raise NoeticConfigError("INVALID_WIDTH", "This width is not possible for a picture.", given=width, hint=hint)
    if theme not in list(GROUNDS):  # a list would not be hashed
        raise NoeticConfigError("INVALID_THEME", "There is no such theme.", given=theme, hint='Use "light" or "dark".')
