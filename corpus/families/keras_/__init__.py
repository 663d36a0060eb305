"""Families with Keras on TensorFlow, which is imported when one of them trains."""
