"""Reports and charts of runs and sweeps."""
