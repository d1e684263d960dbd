"""The readings and decisions of a regulator in a run, and those of another regulator."""
