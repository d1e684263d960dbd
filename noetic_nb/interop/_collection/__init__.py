"""Folders of runs: their index, expressions about it, and sets of runs that are kept for tests."""

__all__: list[str] = []
