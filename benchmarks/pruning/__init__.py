"""Benchmarks of filter pruning: `python -m benchmarks.pruning`."""
