"""Capture from Lightning."""
