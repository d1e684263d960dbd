"""Readers of files and objects that hold conversations, one module per format."""
