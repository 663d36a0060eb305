"""Rules about tree models."""
