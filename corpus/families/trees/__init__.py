"""Families with boosted trees."""
