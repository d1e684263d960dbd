"""Records an agent's events to a run, keeps the run below its size limit, and saves it to a file as it grows."""
