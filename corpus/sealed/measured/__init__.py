"""Sealed families of measured series."""
