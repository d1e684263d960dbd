"""The state that executions share, and the state of one while it runs."""
