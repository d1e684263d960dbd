"""What of a conversation and of a turn under way is in storage."""
