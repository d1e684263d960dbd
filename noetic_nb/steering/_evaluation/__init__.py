"""Evaluate the rules of one version on one call or response."""
