"""Prunings: rounds one after the other, each a supervised run, until a target or a limit."""
