"""What a regulator saw and decided in a run, and what another one would have."""
