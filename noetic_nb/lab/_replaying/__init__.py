"""Recorded runs asked again: replays under another configuration, forks from a call, comparisons of two runs."""
