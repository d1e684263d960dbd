"""ROOM _hooks."""
