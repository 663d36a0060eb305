"""HTML reports of runs and sweeps."""
