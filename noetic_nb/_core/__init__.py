"""Helpers that all parts use."""
