"""Outcome signals: whether a training reaches what it should."""
