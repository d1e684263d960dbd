"""Conversations: their queues, turns and memory history."""
