"""One file per group of commands: arguments, work, and exit codes."""
