"""Parameter signals: gradients, updates and weights."""
