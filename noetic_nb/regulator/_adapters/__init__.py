"""Other ways in and out: recorded runs, event logs, OpenTelemetry spans, several threads."""
