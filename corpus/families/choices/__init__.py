"""Families of users and what they choose."""
