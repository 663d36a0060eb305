"""Losses of torch trainings: those that scripts report, and those found at backward passes."""
