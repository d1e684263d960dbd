"""The rule book: an ordered, versioned set of rules, its decorators and its files."""
