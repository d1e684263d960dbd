"""The editor of a rule book, its trial and its cell magic."""
