"""The request of each model call in a run, its token counts, and the part that a cache would hold."""
