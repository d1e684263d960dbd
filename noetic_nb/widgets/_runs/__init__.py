"""The view of a collection of runs."""
