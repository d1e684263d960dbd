"""The state that executions share, and the state of one running execution."""
