"""Agents in closed environments, attacked through what they read, and guarded by rules."""
