"""Places of runs: a directory, an object store, a worker of a cluster."""
