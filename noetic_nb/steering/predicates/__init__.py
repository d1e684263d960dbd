"""What decides a rule: Python, CEL, a judge, or the calls so far."""
