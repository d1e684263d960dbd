"""Detectors of failing runs: their scores, how well they separate runs, and the value of stopping by them."""
