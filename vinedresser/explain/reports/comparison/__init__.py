"""Report of a comparison of runs."""
