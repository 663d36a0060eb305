"""Rules about losses, outputs and accuracy."""
