"""The deciders of rules: Python, CEL, a judge, or the calls so far."""
