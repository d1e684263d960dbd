"""ROOM _enforcement."""
