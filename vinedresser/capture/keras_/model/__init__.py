"""Names, paths and properties of the layers and variables of a Keras model."""
