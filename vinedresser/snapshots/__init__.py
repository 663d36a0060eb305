"""Snapshots: all that a training step needs to run again, whatever the framework."""
