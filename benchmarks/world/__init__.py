"""Trainings of many kinds, each verified by its outcome, to test the judgement of runs in."""
