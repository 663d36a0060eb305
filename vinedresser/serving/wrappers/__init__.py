"""Wrappers of models and applications whose requests are recorded."""
