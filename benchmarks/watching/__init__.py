"""What the page of `vinedresser watch` costs."""
