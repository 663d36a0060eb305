"""Rules about rows and targets that the training must not know."""
