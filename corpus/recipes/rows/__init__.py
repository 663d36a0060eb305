"""Recipes with rows of features."""
