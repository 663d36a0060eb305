"""Families of rows of features."""
