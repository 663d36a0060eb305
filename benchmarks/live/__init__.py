"""Costs and answers of trainings that are asked while they run."""
