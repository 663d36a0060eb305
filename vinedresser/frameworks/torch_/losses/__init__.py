"""What the loss of a torch training compares, from its autograd graph."""
