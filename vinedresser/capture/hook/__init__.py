"""The hook: what a training script uses, and the machinery behind it."""
