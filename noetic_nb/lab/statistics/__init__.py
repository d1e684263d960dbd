"""Labels, groups and intervals of recorded runs: what every experiment counts with."""
