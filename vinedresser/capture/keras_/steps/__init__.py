"""Single steps of a Keras model: eager, as graphs, traced a second time."""
