"""Recipes of agents."""
