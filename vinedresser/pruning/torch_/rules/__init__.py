"""How operators pass labels on, by family."""
