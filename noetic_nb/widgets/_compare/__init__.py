"""Two runs side by side, or two lists of runs in pairs, as a view."""
