"""ROOM _budget."""
