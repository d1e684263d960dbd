"""Folders of runs: their index, expressions over it, and frozen sets of runs for tests."""
