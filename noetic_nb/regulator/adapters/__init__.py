"""Other ways in: recorded events, event logs, spans, several threads."""
