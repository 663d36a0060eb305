"""Cost and completeness of FullGrad: `python -m benchmarks.fullgrad`."""
