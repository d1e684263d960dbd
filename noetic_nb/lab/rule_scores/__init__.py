"""What rules are worth on recorded runs: attacks caught, good runs stopped."""
