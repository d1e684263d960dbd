"""Rules as formulas: a solver proves or refutes claims about all calls of typed tools that pass."""
