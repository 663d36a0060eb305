"""The networks that the cases describe: layers, initialisation, losses and optimizers."""
