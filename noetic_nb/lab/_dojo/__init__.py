"""Agents in closed environments, attacked through the texts that they read, and guarded by rules."""
