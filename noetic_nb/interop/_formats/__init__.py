"""Readers of files and objects that hold conversations, one module per format."""

__all__: list[str] = []
