"""Rules that compare the ranks of a distributed training."""
