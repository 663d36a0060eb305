"""Rules about the values of tensors: weights, gradients, or any others."""
