"""Rules about how weights are changed: learning rate, gradients, regularisation, modes."""
