"""Recordings: what is captured in a step, from the adapter to the writer."""
