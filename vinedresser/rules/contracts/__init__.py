"""Rules about what holds in every correct training, whatever it learns."""
