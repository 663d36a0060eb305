"""Rules about weights: how they begin, how far they move."""
