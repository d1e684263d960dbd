"""Detectors of runs that fail: what they score, how well they tell, and what stopping by them is worth."""
