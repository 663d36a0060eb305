"""Folds: what reduces the results of a window's events, one event at a time."""
