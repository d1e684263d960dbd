"""The deciders of rules: Python, CEL, a judge, or earlier calls."""
