"""One file a command: its arguments, what it does, and how it exits."""
