"""Rules about arbitrary tensors."""
