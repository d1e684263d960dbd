"""Calls the hooks of layers: order, time limits, results, failures and traces."""
