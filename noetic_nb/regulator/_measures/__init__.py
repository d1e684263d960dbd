"""Measures: topics, costs, tools, confidence, corrections. The predicates have the thresholds."""
