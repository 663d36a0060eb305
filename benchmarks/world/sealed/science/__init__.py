"""Sealed families of biology."""
