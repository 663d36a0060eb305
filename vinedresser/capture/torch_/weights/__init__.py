"""What is known of the weights of PyTorch models: untrained, loaded, in which order."""
