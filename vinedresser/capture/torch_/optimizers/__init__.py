"""Torch optimizers: their steps, their state and their updates."""
