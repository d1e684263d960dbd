"""Rules as formulas: the calls that pass, proved or refuted by a solver for all calls of typed tools."""
