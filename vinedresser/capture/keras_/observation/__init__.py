"""Observation of layer calls, losses and optimizer updates of a watched model."""
