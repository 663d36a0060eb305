"""Families of texts."""
