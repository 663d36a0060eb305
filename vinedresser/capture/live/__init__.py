"""Steering a running training."""
