"""Detectors of runs that fail: their scores, how well they separate runs, and the value of stopping by them."""
