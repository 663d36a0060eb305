"""Capture from scikit-learn."""
