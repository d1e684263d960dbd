"""The workbench: the views of one run as one instrument."""
