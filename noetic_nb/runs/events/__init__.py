"""The events of a run: how they grow, which numbers they have, what they weigh, and their JSON."""
