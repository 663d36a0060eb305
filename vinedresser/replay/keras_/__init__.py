"""Running the step of a snapshot of a Keras model again."""
