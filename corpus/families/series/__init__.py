"""Families of sequences and texts."""
