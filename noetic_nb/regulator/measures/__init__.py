"""What is measured: words, costs, tools, confidence, corrections. No thresholds here."""
