"""Recipes of representations, graphs and equations."""
