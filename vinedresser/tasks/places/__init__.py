"""Places where runs are made: here, on an object store, on a cluster."""
