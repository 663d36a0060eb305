"""Commands that steer a running training."""
