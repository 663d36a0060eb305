"""The run store: how captured steps are written, committed, found and read."""
