"""Recipes with boosted trees."""
