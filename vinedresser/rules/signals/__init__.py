"""Quantities that several rules share: folds over the steps, computed once for all rules."""
