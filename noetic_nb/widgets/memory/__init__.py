"""What layers know, turn after turn, as a view."""
