"""Requests to a running training: capture more, save, change a parameter, stop."""
