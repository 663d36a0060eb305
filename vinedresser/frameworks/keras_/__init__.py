"""Keras: names and properties of layers and variables, and tensors in files."""
