"""Report of a pruning."""
