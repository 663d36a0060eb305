"""Capture from Keras 3 with the TensorFlow or PyTorch backend."""
