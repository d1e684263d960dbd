"""Make each kind of step happen, with the same guards for all."""
