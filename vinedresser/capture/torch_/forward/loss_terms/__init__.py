"""Capturing the terms of the loss's first-order decomposition, by call of a module."""
