"""A notebook laboratory for the memory and steering of LLM agents."""
