"""From the events of an agent to a run that is kept within its bound, and in a file while it grows."""
