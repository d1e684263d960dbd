"""The measures: topics, costs, tools, confidence, corrections. Their thresholds are up to the predicates."""
