"""The view of two runs side by side, or of two lists of runs in pairs."""
