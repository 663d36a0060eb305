"""Asking a training that runs on this machine."""
