"""The picture of a regulator's trends: the panels, and the marks of each column of turns."""
