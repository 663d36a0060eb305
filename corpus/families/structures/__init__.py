"""Families of graphs, sets and pairs."""
