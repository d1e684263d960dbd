"""The form that asks a person about a tool call."""
