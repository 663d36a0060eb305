"""Sweeps: the search space, who proposes trials, which are cut off, and what is known of them."""
