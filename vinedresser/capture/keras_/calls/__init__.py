"""The calls into Keras at which capture looks in."""
