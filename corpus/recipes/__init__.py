"""Trainings after public examples and papers, with their settings.

The hyperparameters are those of the sources that each file names, scaled down where it says so.
Each recipe has three faults, mistakes as users make them. Those are not drawn: a recipe is the same
in each run but for its random numbers. They were written without a look at the rules.
"""
