"""The request of each model call of a run, its counted tokens, and the part that a cache would have held."""
