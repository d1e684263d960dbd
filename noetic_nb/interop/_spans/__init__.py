"""Spans of other agents as runs: the fields of one span in each dialect, the spans that are calls, and the run they make."""

__all__: list[str] = []
