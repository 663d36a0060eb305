"""Families of reinforcement learning."""
