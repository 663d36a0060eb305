"""Sealed families that decide, and that recommend."""
