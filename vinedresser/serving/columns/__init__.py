"""The columns by which requests are compared with a baseline."""
