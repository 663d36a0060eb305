"""FullGrad of PyTorch models."""
