"""The commands of the shell: questions of pipelines about recorded runs and rule files."""
