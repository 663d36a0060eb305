"""Training scripts that know nothing of vinedresser."""
