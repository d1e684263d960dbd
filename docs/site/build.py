"""Build the site: ``python docs/site/build.py build/docs``. ``--links`` also asks every address on the web."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

SITE = Path(__file__).parent
ROOT = SITE.parents[1]
sys.path[:0] = [str(ROOT), str(SITE)]

import frames  # noqa: E402  # beside this file
import links  # noqa: E402
import reference  # noqa: E402

DOCS = ROOT / "docs"


def collect(into: Path) -> None:
    """Put together what the site is made of: pages as they are, lessons, and pages made from code."""
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(DOCS, into, ignore=shutil.ignore_patterns("site", "*.py", ".ipynb_checkpoints"))
    _copy(ROOT / "CHANGELOG.md", into / "changelog.md")
    _copy(DOCS / "index.md", into / "index.md")
    lessons = into / "lessons"
    lessons.mkdir()
    for notebook in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        _copy(notebook, lessons / notebook.name)
    if (ROOT / "notebooks" / "images").is_dir():
        shutil.copytree(ROOT / "notebooks" / "images", lessons / "images")

    api = into / "reference" / "api"
    api.mkdir(parents=True)
    for room in reference.ROOMS:
        (api / f"{room}.rst").write_text(reference.room_page(room), encoding="utf-8")
    (into / "reference" / "errors.md").write_text(reference.error_page(ROOT / "noetic_nb"), encoding="utf-8")
    (into / "reference" / "frames.md").write_text(frames.frames_page(), encoding="utf-8")


def _copy(page: Path, to: Path) -> None:
    # Written for the repository, where the site's pages are in the folder docs.
    text = page.read_text(encoding="utf-8")
    for there, here in (("../docs/", "../"), ("docs/", ""), ("../notebooks/", "lessons/")):
        text = text.replace(f"]({there}", f"]({here}")
    to.write_text(text, encoding="utf-8")


def main() -> int:
    """Build the site and check every link in it; a warning of Sphinx or a broken link is a failure."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--links", action="store_true", help="ask every address on the web, too")
    given = arguments.parse_args()
    source, site = given.folder / "source", given.folder / "html"
    collect(source)
    options = ["-W", "--keep-going", "-q", "-j", "auto", "-c", str(SITE), str(source)]
    failed = sphinx(["-b", "html", *options, str(site)])
    broken = links.broken(site)
    print("\n".join(broken) or f"{site}: every link inside of the site leads somewhere")
    if given.links:
        failed = failed or sphinx(["-b", "linkcheck", *options, str(given.folder / "linkcheck")])
    return 1 if failed or broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
