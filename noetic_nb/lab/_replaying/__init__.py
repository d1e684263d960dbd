"""Recorded runs asked again: replays under another configuration."""
