"""The view of quality and cost over turns."""
