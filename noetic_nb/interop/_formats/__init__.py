"""Files and objects that hold conversations, by their format."""

__all__: list[str] = []
