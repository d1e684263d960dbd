"""What the site is made of: every file that is pinned, held to its checksum, and no address of another host."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from lite import build
from tests.lite.conftest import ROOT, SITE

FILES = ROOT / ".venv-lite/files"
PYODIDE = SITE / "static/pyodide"


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A lock of one wheel, the folder of kept files, and the wheel in it."""
    wheel = next(FILES.glob("comm-*.whl"))
    lock = tmp_path / "wheels.txt"
    lock.write_text(
        "".join(line for line in build.LOCK.read_text().splitlines(keepends=True) if line.startswith("comm=="))
    )
    folder = tmp_path / "files"
    folder.mkdir()
    return lock, folder, Path(shutil.copy(wheel, folder))


def test_a_kept_file_that_was_changed_is_refused_with_both_sums(kept: tuple[Path, Path, Path]) -> None:
    lock, folder, wheel = kept
    assert build.fetched(lock, folder) == {"comm": wheel}
    expected = sha256(wheel.read_bytes()).hexdigest()
    wheel.write_bytes(wheel.read_bytes() + b"\n")

    with pytest.raises(build.BuildError) as caught:
        build.fetched(lock, folder)

    assert all(word in str(caught.value) for word in (wheel.name, expected, sha256(wheel.read_bytes()).hexdigest()))


def test_a_line_without_a_checksum_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "wheels.txt"
    lock.write_text("comm==0.2.3\n")

    with pytest.raises(build.BuildError, match="line 1"):
        build.pinned(lock)


def test_the_list_of_packages_names_what_lies_beside_it_with_its_checksum_and_nothing_else() -> None:
    packages = json.loads((PYODIDE / "pyodide-lock.json").read_text())["packages"]

    assert {one["file_name"] for one in packages.values()} == {path.name for path in PYODIDE.glob("*.whl")}
    for one in packages.values():
        assert sha256((PYODIDE / one["file_name"]).read_bytes()).hexdigest() == one["sha256"], one["name"]
        assert set(one["depends"]) <= packages.keys()
    imported = [top for one in packages.values() for top in one["imports"]]
    assert len(imported) == len(set(imported)), "an import would load one of two packages"
    assert "opentelemetry" in packages["opentelemetry-sdk"]["imports"]
    assert set(build.pinned(build.LOCK)) - {build.CARRIER} <= packages.keys()


def test_the_settings_send_nobody_elsewhere() -> None:
    settings = json.loads((SITE / "jupyter-lite.json").read_text())["jupyter-config-data"]["litePluginSettings"]
    kernel = settings["@jupyterlite/pyodide-kernel-extension:kernel"]

    assert kernel["disablePyPIFallback"] is True
    assert kernel["pyodideUrl"].startswith("./static/")
    assert "://" not in json.dumps(settings)


def test_notebooks_name_the_kernel_of_the_site_and_show_nothing_that_it_did_not_make() -> None:
    notebooks = [json.loads(path.read_text()) for path in SITE.glob("files/*.ipynb")]

    assert notebooks
    assert {one["metadata"]["kernelspec"]["name"] for one in notebooks} == {"python"}
    assert [cell["outputs"] for one in notebooks for cell in one["cells"] if cell.get("outputs")] == []
