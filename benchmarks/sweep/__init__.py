"""Sweeps of small networks: savings and costs of rules and early termination."""
