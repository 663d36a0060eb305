"""Recipes of generative models."""
