"""The events of a run: their log, numbers, sizes, and JSON."""
