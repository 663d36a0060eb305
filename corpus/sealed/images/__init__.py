"""Sealed families of pictures."""
