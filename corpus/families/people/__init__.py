"""Families of what people buy, look at and suffer from."""
