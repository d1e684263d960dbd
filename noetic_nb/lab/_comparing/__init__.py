"""Side-by-side comparison of runs, lists of runs and evaluations."""
