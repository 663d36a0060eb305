"""The run store: how a run lies in its directory, written, committed, found and read."""
