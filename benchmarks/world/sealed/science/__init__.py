"""Sealed families of the sciences."""
