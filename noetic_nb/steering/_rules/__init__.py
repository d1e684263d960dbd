"""Rules as data: the rule, its decider, and its form in a file."""
