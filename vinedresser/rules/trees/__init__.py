"""Rules about trees."""
