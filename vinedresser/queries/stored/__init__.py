"""Queries to what runs have stored, and stored answers."""
