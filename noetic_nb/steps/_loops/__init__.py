"""ROOM _loops."""
