"""Formats of training data: how an object is divided into records."""
