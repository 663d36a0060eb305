"""Sweeps: trials within a budget, cut off and counted."""
