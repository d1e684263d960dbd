"""Replays of recorded runs under another configuration."""
