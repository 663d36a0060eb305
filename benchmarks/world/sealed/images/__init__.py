"""Sealed families of images."""
