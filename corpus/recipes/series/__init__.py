"""Recipes with sequences."""
