"""Sealed families of physics, graphs and groups."""
