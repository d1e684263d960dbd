"""What the commands of the Makefile would do on other machines: as root, in a container, with uv or without, with a port."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import noetic_nb

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def planned(target: str, *settings: str, uid: int = 1000, tmp_path: Path, **environment: str) -> str:
    """Return what `make` would run, as a user of this number."""
    who = tmp_path / "id"
    who.write_text(f"#!/bin/sh\necho {uid}\n")
    who.chmod(0o755)
    clean = {name: text for name, text in os.environ.items() if name in {"PATH", "HOME"}}
    clean["PATH"] = f"{tmp_path}{os.pathsep}{clean['PATH']}"
    # A folder that is not there: as on the first call.
    command = [
        "make",
        "--dry-run",
        "--no-print-directory",
        target,
        f"VENV={tmp_path}/venv",
        f"FRAMEWORKS={tmp_path}/fw",
        f"DOJO={tmp_path}/dojo",
    ]
    done = subprocess.run(
        [*command, *settings], cwd=ROOT, env=clean | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def opened(plan: str) -> str:
    return next(line for line in plan.splitlines() if "jupyter lab" in line)


def test_root_is_allowed_and_nobody_else_needs_to_be(tmp_path: Path) -> None:
    assert "--allow-root" in opened(planned("lab", uid=0, tmp_path=tmp_path))
    assert "--allow-root" not in opened(planned("lab", uid=1000, tmp_path=tmp_path))


@pytest.mark.skipif(os.uname().sysname == "Darwin", reason="a browser can always be opened")
def test_a_browser_is_opened_only_where_there_is_a_screen(tmp_path: Path) -> None:
    assert "--no-browser" in opened(planned("lab", tmp_path=tmp_path))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME", "BROWSER"):
        assert "--no-browser" not in opened(planned("lab", tmp_path=tmp_path, **{name: "there"}))


def test_address_and_port_are_passed_on_when_they_are_named(tmp_path: Path) -> None:
    assert not re.search("--ip|--port", opened(planned("lab", tmp_path=tmp_path)))
    assert "--ip=0.0.0.0 --port=9000 " in opened(planned("lab", "IP=0.0.0.0", "PORT=9000", tmp_path=tmp_path))


def test_nobody_is_asked_about_news_over_the_tour(tmp_path: Path) -> None:
    assert "labextensions disable --level=sys_prefix @jupyterlab/apputils-extension:announcements" in planned(
        "lab", tmp_path=tmp_path
    )


@pytest.mark.parametrize("target", ["lab", "test", "frameworks", "wheel", "bench"])
def test_every_set_up_uses_uv_where_it_is_and_pip_where_it_is_not(target: str, tmp_path: Path) -> None:
    with_uv, without = (planned(target, f"UV={uv}", tmp_path=tmp_path) for uv in ("/opt/uv", ""))

    assert "/opt/uv venv" in with_uv
    assert "/opt/uv pip install --python" in with_uv
    assert not re.search("-m venv|-m pip", with_uv)
    assert "-m venv" in without
    assert "-m pip install" in without
    assert "uv " not in without
    assert "--quiet" not in with_uv + without


def test_uv_is_found_on_the_path(tmp_path: Path) -> None:
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\n")
    uv.chmod(0o755)

    assert f"{uv} venv" in planned("lab", tmp_path=tmp_path)


@pytest.mark.parametrize("target", ["lab", "test", "bench"])
def test_the_extras_that_are_installed_exist(target: str, tmp_path: Path) -> None:
    named = re.findall(r"\.\[([\w,]+)\]", planned(target, tmp_path=tmp_path))

    assert named
    assert {extra for extras in named for extra in extras.split(",")} <= set(PROJECT["optional-dependencies"])


def test_python_keeps_its_bytecode_whatever_the_image_of_a_container_says() -> None:
    command = ["make", "--no-print-directory", "--eval=show-environment: ; @env", "show-environment"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}

    shown = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout

    assert "PATH=" in shown
    assert "PYTHONDONTWRITEBYTECODE" not in shown


def test_one_version_in_every_place() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    released = re.findall(r"^## (\d\S*) \((\d{4}-\d\d-\d\d)\)$", changelog, re.MULTILINE)

    assert PROJECT["version"] == noetic_nb.__version__
    assert released
    assert released[0] == (
        PROJECT["version"],
        *re.findall(r"^date-released: (\S+)$", citation, re.MULTILINE),
    )
    assert f"version: {PROJECT['version']}\n" in citation


@pytest.mark.parametrize("name", ["UV_SYSTEM_CERTS", "UV_NATIVE_TLS"])
def test_uv_trusts_what_the_machine_trusts_unless_told_otherwise(name: str) -> None:
    def seen(**environment: str) -> str:
        command = ["make", "--silent", f"--eval=shown:; @echo $${name}", "shown"]
        clean = {key: text for key, text in os.environ.items() if key == "PATH"} | environment
        return subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, check=True).stdout.strip()

    assert seen() == "true"
    assert seen(**{name: "false"}) == "false"
