"""Scripts in the style of well-known public ones, with and without vinedresser."""
