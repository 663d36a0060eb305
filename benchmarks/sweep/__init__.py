"""Sweeps of small networks: what rules and early termination save, and what they cost."""
