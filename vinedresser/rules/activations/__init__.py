"""Rules about the outputs of activation functions."""
