"""Spans of a run, the rows for drawing them, and how the time of turns was spent."""
