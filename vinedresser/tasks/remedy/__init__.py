"""Attempts that replace stopped runs."""
