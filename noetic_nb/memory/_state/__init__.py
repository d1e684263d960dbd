"""ROOM _state."""
