"""Capture from TensorFlow graphs: second functions that also return captured tensors."""
