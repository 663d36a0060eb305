"""Commands that ask and steer a running training."""
