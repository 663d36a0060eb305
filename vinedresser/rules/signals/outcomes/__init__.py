"""Outcome signals: whether a training learns as it should."""
