"""Rules about any tensors."""
