"""ROOM _core."""
