"""What is put off until it is asked for gives the answers it would have given at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ASKED = """
import sys
import tests.early
import jsonschema
before = type(sys.modules["rfc3987_syntax"]).__name__
asked = jsonschema.Draft202012Validator({"format": "iri"}, format_checker=jsonschema.FormatChecker())
print(before, asked.is_valid("https://example.org/é"), asked.is_valid("no iri"), asked.is_valid("b:c"))
"""


def test_the_grammar_of_iris_is_loaded_when_a_text_is_judged() -> None:
    pytest.importorskip("rfc3987_syntax")
    done = subprocess.run(
        [sys.executable, "-c", ASKED], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )

    assert done.stdout.split() == ["LaterGrammar", "True", "False", "True"]
