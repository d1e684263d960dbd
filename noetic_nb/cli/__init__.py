"""The commands of the shell: what pipelines ask of recorded runs and rule files."""
