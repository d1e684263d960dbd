"""The view of steering decisions."""
