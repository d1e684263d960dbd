"""The modules that make the site, which are scripts beside the pages and no package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def site_module(name: str) -> ModuleType:
    """Return a module of ``docs/site``."""
    folder = str(ROOT / "docs" / "site")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)
