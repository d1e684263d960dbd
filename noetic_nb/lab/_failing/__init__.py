"""The first failing step of a run, from evidence in the run itself."""
