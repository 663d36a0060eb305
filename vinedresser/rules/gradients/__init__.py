"""Rules about the sizes of gradients."""
