"""Cost of recording the requests of a served model."""
