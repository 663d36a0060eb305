"""Requests in a store: names, encoding, writing and removal."""
