"""Sweeps: search space, samplers, early termination of trials, and the study that decides."""
