"""Many configurations on many recorded runs: spaces, parallel processes, tables with intervals."""
