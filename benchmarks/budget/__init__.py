"""What captures for rules cost a training, with and without a budget."""
