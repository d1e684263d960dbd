"""The measurements and decisions of a regulator in a run, and what another regulator would have decided."""
