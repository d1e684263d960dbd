"""Spans of a run, the rows they are drawn in, and where the time of turns went."""
