"""Running the step of a Keras model again in the script that trained it."""
