"""Sealed families that decide."""
