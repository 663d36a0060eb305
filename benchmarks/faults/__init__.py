"""Faulty and healthy trainings, and how well the rules separate them."""
