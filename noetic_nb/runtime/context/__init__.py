"""What executions share and what one of them knows while it runs."""
