"""Plan a model call: the sent items, the items left out, and the reasons."""
