"""Families of functions that are learned whole: curves, fields, fixed points."""
