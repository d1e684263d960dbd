"""Links inside of a built site: each must lead to a page that is there, and to a place that is on it."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["broken"]


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.places |= {value for key in ("id", "name") if (value := given.get(key))}
        target = given.get("href" if tag in ("a", "link") else "src")
        if target:
            self.targets.append(target)


def broken(site: Path) -> list[str]:
    """Return a sentence for each link that leads nowhere.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a.html").write_text('<a id="x" href="#y">y</a> <a href="b.html">b</a> <a href="#x">x</a>')
    ...     broken(Path(folder))
    ['a.html: #y', 'a.html: b.html']
    """
    pages = {path.resolve(): _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        for target in dict.fromkeys(page.targets):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if file.is_dir():
                file /= "index.html"
            there = pages.get(file)
            place = unquote(parts.fragment)
            if not file.exists() or (there is not None and place and place not in there.places):
                found.append(f"{path.relative_to(site.resolve())}: {target}")
    return found
