"""Adapters: recorded runs, event logs, OpenTelemetry spans, several threads."""
