"""The view of what steering decided."""
