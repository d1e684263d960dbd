"""Spans of other agents as runs: a span's fields in each dialect, the spans that are calls, and the resulting run."""

__all__: list[str] = []
