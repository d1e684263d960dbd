"""Exports of tracing services: their records as spans."""

__all__: list[str] = []
