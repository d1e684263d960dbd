"""Conversations: their queues, their turns, and the history of their memory."""
