"""Executes each kind of step, with the same guards for all."""
