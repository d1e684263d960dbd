"""Files of a view: its table, and the view itself as one page; as methods, and as files that a page saves."""

from __future__ import annotations

from base64 import b64encode
from os import PathLike
from pathlib import Path
from typing import Any, Final

from noetic_nb._core.atomic_write import write_whole
from noetic_nb.markup import escape, html_page
from noetic_nb.redact import Redaction

FILES: Final = {
    "csv": ("to_csv", "text/csv"),
    "html": ("to_page", "text/html"),
    "svg": ("to_svg", "image/svg+xml"),
    "png": ("to_png", "image/png"),
}
"""The kinds of files, each with the method that makes it, which not every view has, and its type."""


class FilesMixin:
    """Mixed into a view that has `to_frame` and `to_html`."""

    def to_csv(self, path: str | PathLike[str] | None = None) -> str:
        """Return the table of the view as CSV, without secrets; with `path`, write it to a file as well.

        Parameters
        ----------
        path : path-like, optional
            The file, written whole or not at all.

        Returns
        -------
        str
            `to_frame()` without its index; the first line has the names of the columns.

        Raises
        ------
        NoeticConfigError
            ``CANNOT_WRITE``.
        """
        frame, rule = self.to_frame(), Redaction()  # type: ignore[attr-defined]  # of the view this is mixed into
        for name in [name for name, dtype in frame.dtypes.items() if dtype.kind == "O"]:
            frame[name] = [rule.data(value) for value in frame[name]]
        return _written(frame.to_csv(index=False), path)

    def to_page(self, path: str | PathLike[str] | None = None) -> str:
        """Return the static form of the view as one HTML page, which needs no kernel and no network.

        Parameters
        ----------
        path : path-like, optional
            The file to write it to as well, whole or not at all.

        Returns
        -------
        str
            The page.

        Raises
        ------
        NoeticConfigError
            ``CANNOT_WRITE``.
        """
        title = self.to_text().partition("\n")[0]  # type: ignore[attr-defined]
        return _written(html_page(title[:120], self.to_html()), path)  # type: ignore[attr-defined]

    def form(self) -> str:
        """Return the view as HTML, with its picture once more for pages that keep no styles."""
        reading = self.reading  # type: ignore[attr-defined]
        picture = ""
        if hasattr(self, "to_svg") and reading.has_any:
            alt, data = escape(reading.to_text().partition("\n")[0]), b64encode(self.to_svg().encode()).decode()
            picture = f'<p class="nn-plain"><img alt="{alt}" src="data:image/svg+xml;base64,{data}"></p>'
        return f"{reading.to_html()}{picture}"

    @property
    def _file_kinds(self) -> list[str]:
        return [kind for kind, (method, _) in FILES.items() if hasattr(type(self), method)]

    def _file(self, kind: str) -> dict[str, Any]:
        """Return a file for a page: its name, its type, and its bytes as base64."""
        method, mime = FILES[kind]
        made = getattr(self, method)()
        data = made if isinstance(made, bytes) else made.encode("utf-8", "backslashreplace")
        return {"name": f"{type(self).__name__.lower()}.{kind}", "type": mime, "base64": b64encode(data).decode()}


def _written(text: str, path: str | PathLike[str] | None) -> str:
    if path is not None:
        write_whole(Path(path), text)
    return text
