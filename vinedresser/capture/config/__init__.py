"""The configuration of a capture: the collections in force and what is due when."""
