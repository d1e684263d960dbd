"""Rules as data: what a rule is, what decides it, and how it looks in a file."""
