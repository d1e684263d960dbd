"""Run the shell commands: ``python -m noetic_nb --help``."""

import sys

from noetic_nb.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
