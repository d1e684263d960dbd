"""What decides: Python, CEL, a judge, or a sentence about the calls so far."""
