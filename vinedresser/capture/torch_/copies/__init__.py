"""Copies and statistics of torch tensors."""
