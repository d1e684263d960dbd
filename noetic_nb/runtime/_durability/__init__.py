"""The stored form of conversations and of running turns."""
