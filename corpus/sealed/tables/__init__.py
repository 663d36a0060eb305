"""Sealed families of tables."""
