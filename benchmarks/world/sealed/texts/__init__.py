"""Sealed families of texts."""
