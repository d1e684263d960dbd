"""The value of rules on recorded runs: attacks caught, good runs stopped."""
