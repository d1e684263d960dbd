"""The record of a command, and the exit codes that all of them share."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from noetic_nb.cli._output import Output

__all__ = ["BAD_INPUT", "FINDINGS", "FINE", "INTERRUPTED", "Command"]

FINE: Final = 0
"""Nothing was found, and every limit is kept."""
FINDINGS: Final = 1
"""Something was found: a finding, a change, a limit that is not kept, a record that cannot be read."""
BAD_INPUT: Final = 2
"""The command could not be carried out: wrong arguments, files that are missing or damaged."""
INTERRUPTED: Final = 130
"""It was interrupted; what a shell reports then: 128 and the number of the signal."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Parameters
    ----------
    name : str
        What is typed.
    summary : str
        One sentence for the list of commands.
    example : str
        Arguments that work anywhere, without a file.
    codes : str
        When it exits with 0 and when with 1.
    add_arguments : callable
        Adds its arguments to a parser.
    run : callable
        Does it; returns the exit code. Heavy packages are imported here and nowhere else.
    """

    name: str
    summary: str
    example: str
    codes: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, Output], int]
