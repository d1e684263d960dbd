"""Exports of tracing services: their records as spans."""
