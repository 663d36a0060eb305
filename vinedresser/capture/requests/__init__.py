"""Requests to a running training: change the capture, save a checkpoint, change a parameter."""
