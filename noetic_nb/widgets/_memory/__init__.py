"""The view of the states of layers, turn after turn."""
