"""Counterfactuals: steps from a recorded state with one thing changed, and what cures them."""
