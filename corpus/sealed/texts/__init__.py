"""Sealed families of texts and other sequences of symbols."""
