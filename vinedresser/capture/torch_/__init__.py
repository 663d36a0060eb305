"""Capture from PyTorch."""
