"""The command line: one parser for each command, errors as one line, exit codes that a pipeline can use."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Final, NoReturn

from noetic_nb._core.long_work import Interrupted
from noetic_nb.cli._command import BAD_INPUT, INTERRUPTED, Command, Output
from noetic_nb.cli._commands.of_rules import BACKTEST, CHECK, EVALUATE, LINT
from noetic_nb.cli._commands.of_runs import EXPORT, GRADE, IMPORT, REPORT, VIEW
from noetic_nb.errors import NoeticConfigError, NoeticError

__all__ = ["COMMANDS", "main"]

COMMANDS: Final[tuple[Command, ...]] = (IMPORT, EXPORT, REPORT, VIEW, LINT, BACKTEST, EVALUATE, CHECK, GRADE)
_CODES: Final = "Exits with 2 if the command cannot run, for example because a file is missing."


class _Version(argparse.Action):
    """Prints the version, which is read from the package only on request."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        import noetic_nb

        print(f"noetic_nb {noetic_nb.__version__}")
        parser.exit()


@cache  # the same for every command in a process
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="noetic-nb",
        description="Experiments on recorded runs of LLM agents, from the shell.",
        epilog="noetic-nb COMMAND --help has an example of each.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        own = commands.add_parser(
            command.name,
            help=command.summary,
            description=command.summary,
            epilog=f"Example: noetic-nb {command.name} {command.example}\n\nExits with {command.codes}\n{_CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(own)
        own.add_argument("--json", action="store_true", help="answer as one JSON document")
        own.set_defaults(run=command.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, by default from this process's arguments.

    Returns the exit code: 0 fine, 1 something was found, 2 the command could not run.
    """
    given = _parser().parse_args(arguments)
    output = Output(as_json=given.json)
    try:
        with warnings.catch_warnings():
            # A limit met by half of the runs says nothing about all: commands that keep partial results handle this themselves.
            warnings.simplefilter("error", Interrupted)
            code: int = given.run(given, output)
        sys.stdout.flush()
    except (NoeticConfigError, NoeticError) as error:
        # One line, because it contains ids and texts of sources.
        output.note(f"noetic-nb {given.command}: {' '.join(str(error).split())}")
        return BAD_INPUT
    except BrokenPipeError:
        # The reader, such as `head`, has stopped. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, Interrupted):
        output.note(f"noetic-nb {given.command}: interrupted")
        return INTERRUPTED
    return code
