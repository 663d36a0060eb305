"""Sealed families of curves and sounds."""
