"""Cost of comparing runs."""
