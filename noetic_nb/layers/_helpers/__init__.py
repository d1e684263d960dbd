"""Parts that several built-in layers share."""
