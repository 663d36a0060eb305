"""Families of images."""
