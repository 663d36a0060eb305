"""Rules about how weights change: learning rate, gradients, regularisation, modes."""
