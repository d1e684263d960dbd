"""What an agent is, as data: its configuration, its limits, and both as JSON."""
