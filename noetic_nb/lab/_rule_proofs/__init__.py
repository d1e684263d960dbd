"""Rules as formulas: what they let pass, proved or refuted by a solver for all calls of typed tools."""
