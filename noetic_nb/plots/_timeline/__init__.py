"""The scene of what ran when, which view and figure draw."""
