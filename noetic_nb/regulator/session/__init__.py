"""The session of the original: kept for parity of snapshots. Nothing in it reaches `decide`."""
