"""What is measured: topics, costs, tools, confidence, corrections. What a measure has to reach is up to the predicates."""
