"""Queries to a running or stored training: expressions over its tensors, reduced by windows."""
