"""Rules that say which channel each element of an output belongs to."""
