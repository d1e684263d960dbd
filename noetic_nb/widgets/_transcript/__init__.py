"""The view of one model call: its request item by item, and its outcome."""
