"""Recipes with images."""
