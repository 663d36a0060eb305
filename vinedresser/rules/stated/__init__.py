"""Rules that judge by what the user states: expectations, and good runs."""
