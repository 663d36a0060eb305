"""Cost of the guard against gradients that are not finite: ``python -m benchmarks.guard``."""
