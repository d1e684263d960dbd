"""The session of the original, for parity of its snapshots and signals. Nothing in this folder reaches `decide`.

A regulator feeds it and never reads it: decisions, confidence and metrics are the same whatever it holds, and neither measures
nor predicates import it. What it learns shows in `RegulatorState.learned` and `Regulator.signals` only.
"""
