"""The backends of Keras: TensorFlow and torch."""
