"""Evidence of drift in streams of values, valid at any time."""
