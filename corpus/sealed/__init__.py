"""Families that nobody looks at while working on rules.

They were written without a look at the rules, and two thirds of their faults are those that the
literature finds most often. They have not been judged.
"""
