"""PyTorch: names, nesting, tensors in files, random states, optimizers, events of the loop."""
