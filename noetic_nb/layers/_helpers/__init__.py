"""ROOM _helpers."""
