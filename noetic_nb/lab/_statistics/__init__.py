"""Labels, groups and intervals of recorded runs, shared by every experiment."""
