"""ROOM _json."""
