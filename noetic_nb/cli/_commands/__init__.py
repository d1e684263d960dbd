"""One file a command: its arguments, its work, and its exit code."""
