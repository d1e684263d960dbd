"""The states of layers: their copies, the live store, and the mirror in storage."""
