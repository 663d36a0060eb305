"""Rules about gradient sizes."""
