"""The view of the token allocation."""
