"""Quantities that several rules share: folds over the steps, computed once for all rules.

A loss is named without its collection, unless its full name is asked for.
"""
