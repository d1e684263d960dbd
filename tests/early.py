"""Loaded by pytest before its plugins: what those would import at length for nothing, and examples of optional packages.

The plugin that runs notebooks imports jsonschema, which imports the grammar of IRIs where it is installed, as JupyterLab has it:
a second of work, done by every worker, for a format that no test asks about.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

GRAMMAR: Final = "rfc3987_syntax"


class LaterGrammar(ModuleType):
    """Stands where the grammar would, until it is asked about a text."""

    @staticmethod
    def is_valid_syntax(term: str, value: str) -> Any:
        if isinstance(sys.modules.get(GRAMMAR), LaterGrammar):
            del sys.modules[GRAMMAR]
        from rfc3987_syntax import is_valid_syntax

        return is_valid_syntax(term, value)


sys.modules.setdefault(GRAMMAR, LaterGrammar(GRAMMAR))

NEEDS: Final = {"_rule_proofs": "z3"}
"""Folders whose modules need the package of an extra."""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    package = NEEDS.get(collection_path.parent.name)
    return True if package is not None and find_spec(package) is None else None
