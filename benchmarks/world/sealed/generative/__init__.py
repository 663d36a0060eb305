"""Sealed families of generative models."""
