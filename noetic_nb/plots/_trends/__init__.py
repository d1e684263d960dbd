"""The picture of a regulator's trends: which panels there are, and the marks of each column of turns."""
