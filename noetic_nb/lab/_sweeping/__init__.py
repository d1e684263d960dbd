"""Many configurations on many recorded runs: spaces, work on several processors, tables with intervals."""
