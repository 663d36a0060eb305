"""The hook: the interface between a training script and the capture."""
