"""Faulty and healthy trainings, and how well the rules tell them apart."""
