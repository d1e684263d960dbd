"""Build a site that runs the notebooks in a browser, without any server: JupyterLite with the Pyodide kernel.

    .venv-lite/bin/python lite/build.py --files .venv-lite/files --out build/lite

Nothing on the site is fetched from elsewhere: the interpreter and every wheel lie beside it. They come from the package index,
each held to the checksum in `wheels.txt`, and are kept in the folder `--files`. What is there already is not fetched again,
but its checksum is looked at again.

The interpreter is Pyodide as it was published, carried by the wheel of `flet-web`; nothing else of that is used. Its list of
packages is replaced by one of what lies beside the site, so that nothing is looked for that cannot be found.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable
from email.parser import HeaderParser
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent
LOCK: Final = HERE / "wheels.txt"

# What the interpreter below is: an extension module of another Python or another ABI is not loaded.
PYTHON: Final = "3.14"
ABI: Final = "pyemscripten_2026_0_wasm32"
BROWSER: Final = {
    "sys_platform": "emscripten",
    "platform_system": "Emscripten",
    "os_name": "posix",
    "python_version": PYTHON,
}

CARRIER: Final = "flet-web"
CARRIED: Final = "flet_web/web/pyodide/"
CORE: Final = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")

# The kernel asks for these when it begins; they are there before it asks, and it need not work out what they depend on.
KERNEL: Final = ("micropip", "piplite", "ipykernel", "comm", "pyodide-kernel", "jedi", "ipython")
KERNEL_WHEELS: Final = "@jupyterlite/pyodide-kernel-extension/static/pypi"
OURS: Final = "noetic-nb"
STARTUP: Final = "noetic_nb/widgets/base/_missing_packages.py"
KERNELSPEC: Final = {"name": "python", "display_name": "Python (Pyodide)", "language": "python"}
# It would lay the files of the page over the folder that the kernel works in, where SQLite reads other bytes than it wrote.
# Without it a kernel has a folder in memory, and notebooks are kept by the page all the same.
FILES_OF_THE_PAGE: Final = "@jupyterlite/application-extension:service-worker-manager"
APPS: Final = ("lab", "notebooks", "tree")

_PINNED: Final = re.compile(r"^([\w.-]+)==(\S+) --hash=sha256:([0-9a-f]{64})$")


class BuildError(Exception):
    """The site cannot be built; the message says why and what to do."""


def name_of(text: str) -> str:
    """Return the name of a distribution as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", text).lower()


def pinned(lock: Path) -> dict[str, tuple[str, str]]:
    """Return what a lock names: the version and the SHA-256 of each distribution."""
    found: dict[str, tuple[str, str]] = {}
    for number, line in enumerate(lock.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = _PINNED.match(line)
        if match is None:
            raise BuildError(
                f"{lock}, line {number}: write NAME==VERSION --hash=sha256:SUM, one on a line. Given: {line!r}"
            )
        name, version, checksum = match.groups()
        found[name_of(name)] = version, checksum
    return found


def wheels_in(folder: Path) -> dict[tuple[str, str], Path]:
    """Return the wheels of a folder by name and version."""
    return {(name_of(path.name.split("-")[0]), path.name.split("-")[1]): path for path in sorted(folder.glob("*.whl"))}


def fetched(lock: Path, folder: Path) -> dict[str, Path]:
    """Return the file of each distribution of a lock; what is missing is fetched, all are checked.

    Raises `BuildError` where a file is not the one that the lock means, or cannot be had.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = pinned(lock)
    missing = [name for name, (version, _) in wanted.items() if (name, version) not in wheels_in(folder)]
    for number, name in enumerate(missing, 1):
        # One at a time, so that an interrupt keeps those that are there.
        print(f"fetching wheel {number} of {len(missing)}: {name} {wanted[name][0]}", flush=True)
        with tempfile.TemporaryDirectory() as scratch:
            part = Path(scratch, "wheels.txt")
            part.write_text(f"{name}=={wanted[name][0]} --hash=sha256:{wanted[name][1]}\n")
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            command += ["--require-hashes", "--only-binary=:all:", "--dest", str(folder), "--requirement", str(part)]
            command += ["--platform", ABI, "--python-version", PYTHON]
            if subprocess.run(command, check=False).returncode:
                raise BuildError(
                    "Not every wheel could be fetched; pip says which above. One whose hash does not match was changed on its "
                    f"way or is not the one of {lock}: do not use it. Without a network, put the files into {folder}."
                )
    found = wheels_in(folder)
    files = {name: found[name, version] for name, (version, _) in wanted.items() if (name, version) in found}
    for name, path in files.items():
        given, expected = sha256(path.read_bytes()).hexdigest(), wanted[name][1]
        if given != expected:
            raise BuildError(
                f"{path} is not the file that {lock} means.\n  SHA-256 expected: {expected}\n  SHA-256 found:    {given}\n"
                "Delete it and build again. If it comes back so, whoever serves it has changed it: do not use it."
            )
    if len(files) < len(wanted):
        raise BuildError(f"No wheel for the browser: {', '.join(sorted(wanted.keys() - files.keys()))}.")
    return files


def entry(wheel: Path, carried: Iterable[str]) -> dict[str, Any]:
    """Return what Pyodide's list of packages says of a wheel."""
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        head = HeaderParser().parsestr(files.read(metadata).decode())
    tops = {name.split("/")[0] for name in names if not re.match(r"[^/]+\.(dist-info|data)/", name)}
    needed = [Requirement(text) for text in head.get_all("Requires-Dist", [])]
    wanted = {
        name_of(one.name) for one in needed if one.marker is None or one.marker.evaluate({**BROWSER, "extra": ""})
    }
    return {
        "name": name_of(head["Name"]),
        "version": head["Version"],
        "file_name": wheel.name,
        "install_dir": "site",
        "sha256": sha256(wheel.read_bytes()).hexdigest(),
        "package_type": "package",
        "imports": sorted(top.removesuffix(".py") for top in tops if not re.search(r"\.(so|pth|pyi)$", top)),
        "depends": sorted(wanted & set(carried)),
        "unvendored_tests": False,
        "tool": {},
    }


def own_wheel(folder: Path) -> Path:
    """Build the wheel of this library."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)], check=True)
    return next(folder.glob("noetic_nb-*.whl"))


def interpreter(carrier: Path, wheels: Iterable[Path], folder: Path) -> None:
    """Put the interpreter into a folder, with wheels beside it and a list of these alone."""
    folder.mkdir(parents=True)
    with zipfile.ZipFile(carrier) as files:
        for name in CORE:
            folder.joinpath(name).write_bytes(files.read(CARRIED + name))
    listing = folder / CORE[-1]
    lock = json.loads(listing.read_text())
    if not lock["info"]["python"].startswith(f"{PYTHON}.") or lock["info"]["abi_version"] not in ABI:
        raise BuildError(f"{carrier.name} carries another interpreter than {PYTHON} for {ABI}: {lock['info']}.")
    by_name = {name_of(path.name.split("-")[0]): path for path in wheels}
    for path in by_name.values():
        shutil.copy(path, folder)
    packages = {name: entry(path, by_name) for name, path in sorted(by_name.items())}
    # Where wheels share a namespace, an import loads the one that needs the others.
    parts = {needed for one in packages.values() for needed in one["depends"]}
    shared = Counter(top for one in packages.values() for top in one["imports"])
    for name, one in packages.items():
        one["imports"] = [top for top in one["imports"] if shared[top] == 1 or name not in parts]
    lock["packages"] = packages
    listing.write_text(json.dumps(lock, indent=1))


def for_browser(notebook: Path) -> dict[str, Any]:
    """Return a notebook for the kernel of the site, without what another one has shown."""
    made: dict[str, Any] = json.loads(notebook.read_text())
    made["metadata"]["kernelspec"] = KERNELSPEC
    for cell in made["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return made


def settings() -> dict[str, Any]:
    """Return the settings of the site."""
    kernel = {
        "disablePyPIFallback": True,
        "loadPyodideOptions": {
            "packages": [*KERNEL, OURS],
            "env": {"HOME": "/home/pyodide", "PYTHONSTARTUP": f"/lib/python{PYTHON}/site-packages/{STARTUP}"},
        },
    }
    return {
        "jupyter-lite-schema-version": 0,
        "jupyter-config-data": {
            "appName": "noetic_nb",
            "defaultKernelName": KERNELSPEC["name"],
            "disabledExtensions": [FILES_OF_THE_PAGE],
            "litePluginSettings": {"@jupyterlite/pyodide-kernel-extension:kernel": kernel},
        },
    }


def build(files: Path, out: Path, notebooks: Iterable[Path]) -> None:
    """Build the site."""
    wheels = fetched(LOCK, files)
    carrier = wheels.pop(CARRIER)
    with tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)
        print("building the wheel of this library, and the interpreter", flush=True)
        kernel_wheels = sorted(Path(sys.prefix, "share/jupyter/labextensions", KERNEL_WHEELS).glob("*.whl"))
        interpreter(carrier, [*kernel_wheels, *wheels.values(), own_wheel(here / "own")], here / "site/static/pyodide")
        (here / "contents").mkdir()
        for path in notebooks:
            (here / "contents" / path.name).write_text(json.dumps(for_browser(path), indent=1, ensure_ascii=False))
        (here / "site/jupyter-lite.json").write_text(json.dumps(settings(), indent=1))
        print("building the site", flush=True)
        command = [sys.executable, "-m", "jupyterlite_core", "build", "--no-sourcemaps", "--no-unused-shared-packages"]
        command += [f"--apps={app}" for app in APPS]
        command += [
            "--lite-dir",
            str(here / "site"),
            "--contents",
            str(here / "contents"),
            "--output-dir",
            str(here / "out"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=here)
        if done.returncode:
            raise BuildError(f"JupyterLite says:\n{done.stdout}\n{done.stderr}")
        # Only now: an interrupt leaves the site that was there before.
        if out.exists():
            shutil.rmtree(out)
        shutil.move(here / "out", out)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(
        f"{out}: {size / 1e6:.0f} MB; python -m http.server --directory {out}, then /notebooks/index.html?path=01_memory.ipynb"
    )


def main() -> int:
    """Build it as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=Path, default=ROOT / ".venv-lite/files", help="where fetched files are kept")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build/lite", help="where the site goes; what is there goes away"
    )
    given = parser.parse_args()
    try:
        build(given.files, given.out, sorted((ROOT / "notebooks").glob("*.ipynb")))
    except BuildError as exc:
        print(exc, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"Interrupted. What was fetched is kept in {given.files}; the next build goes on.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
