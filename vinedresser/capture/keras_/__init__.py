"""Capture from Keras 3, on its TensorFlow and torch backends."""
