"""Rules as data: what a rule is, what it may answer, and how it looks in a file."""
