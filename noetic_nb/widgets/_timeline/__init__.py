"""The view of the spans of a run."""
