"""Families that model a distribution."""
