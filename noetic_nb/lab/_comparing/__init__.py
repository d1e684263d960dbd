"""Runs, lists of runs and evaluations side by side."""
