"""The stored form of conversations and running turns."""
