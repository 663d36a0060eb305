"""Networks described by the cases: layers, initialisation, losses and optimizers."""
