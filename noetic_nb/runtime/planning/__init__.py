"""Plan a model call: what is sent, what is left out, and why."""
