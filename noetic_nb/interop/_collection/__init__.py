"""Folders of runs: their index, expressions over it, and frozen sets of runs for tests."""

__all__: list[str] = []
