"""Data of the trainings, and faults of data."""
