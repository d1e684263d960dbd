"""The view of what ran when."""
