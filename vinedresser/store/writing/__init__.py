"""Writing a run: the queue, the writer thread and the commit."""
