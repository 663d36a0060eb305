"""Families of recordings over seconds, days or years."""
