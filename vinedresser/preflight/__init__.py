"""Checks of a training in its first seconds: what it computes, and whether it can learn."""
