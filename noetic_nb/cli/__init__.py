"""The shell commands, for pipelines that check recorded runs and rule files."""
