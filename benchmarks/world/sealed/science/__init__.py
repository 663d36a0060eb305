"""Sealed families of graphs and atoms."""
