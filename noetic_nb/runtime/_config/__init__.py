"""An agent as data: its configuration, its limits, and both as JSON."""
