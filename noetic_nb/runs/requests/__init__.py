"""What each model call of a run was sent, what was counted of it, and what a cache would have held."""
