"""Processes of runs: launcher, supervisor, relay, and the GPUs and commands that they get."""
