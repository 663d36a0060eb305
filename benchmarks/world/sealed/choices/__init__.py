"""Sealed families of users and what they choose."""
