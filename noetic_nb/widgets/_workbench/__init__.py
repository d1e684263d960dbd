"""The workbench: all views of one run in one widget."""
