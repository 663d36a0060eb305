"""Sealed families that model a distribution."""
