"""Asking a running training, and steering it: the agent in its process."""
