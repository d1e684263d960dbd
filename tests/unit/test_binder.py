"""What Binder installs before it has the repository: everything that the library and its notebooks need, pinned."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
BINDER = ROOT / "binder"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = ("lab", "rules", "study", "otel")
# They come with the image, whose front end has to fit its hub.
WITH_THE_IMAGE = {"jupyterlab", "nbconvert", "nbclient"}


def pins() -> dict[str, Requirement]:
    lines = (BINDER / "requirements.txt").read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(one.name): one for one in found}


def test_whatever_is_needed_is_pinned_to_a_version_that_fits() -> None:
    needed = [*PROJECT["dependencies"], *(text for extra in EXTRAS for text in PROJECT["optional-dependencies"][extra])]
    pinned = pins()

    for one in map(Requirement, needed):
        name = canonicalize_name(one.name)
        if name in WITH_THE_IMAGE:
            assert name not in pinned
            continue
        assert name in pinned, f"{name} is missing in binder/requirements.txt: its postBuild would fetch any version"
        (pin,) = pinned[name].specifier
        assert pin.operator == "=="
        assert one.specifier.contains(pin.version, prereleases=True), str(one)


def test_the_library_is_installed_from_the_checkout_with_what_its_notebooks_use() -> None:
    script = BINDER / "postBuild"
    installed = re.search(r"pip install .*'\.\[([\w,]+)\]'", script.read_text(encoding="utf-8"))

    assert os.access(script, os.X_OK)
    assert installed is not None
    assert set(installed[1].split(",")) == set(EXTRAS) - {"lab"}
    assert "--no-deps" not in installed[0]


def test_the_python_of_the_image_is_one_that_the_library_supports() -> None:
    version = (BINDER / "runtime.txt").read_text(encoding="utf-8").strip().removeprefix("python-")

    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]
