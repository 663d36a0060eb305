"""Sealed families of measured curves."""
