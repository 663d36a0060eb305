"""Sealed families that choose: actions, treatments, answers."""
