"""What one model call was sent, item by item, and what came of it."""
